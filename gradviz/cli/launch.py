"""What a command does as one of several ranks, which a launcher such as torchrun
started: each writes its files, one reports.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click

from gradviz.rank import Rank, rank
from gradviz.wording import plural

# of a command's context: this rank, and the number of the one that reports
_RANKS = "gradviz.ranks"


def rank_option() -> click.Option:
    """The option that says which rank reports, shown where there are several."""
    return click.Option(
        ["--rank"],
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="K",
        hidden=rank() is None,
        help="Print the report of this rank, and exit with its code.",
    )


@contextmanager
def launched(context: click.Context, reporter: int) -> Iterator[None]:
    """Around a command of which rank `reporter` reports. Raises UsageError where there
    is no such rank.

    A launcher ends all ranks when one fails. When the script has ended (`Run`), that is
    ignored until the command is over, so that the files of every rank are written.
    """
    place = rank()
    world = place.world if place is not None else 1
    if reporter >= world:
        raise click.UsageError(
            f"there is no rank {reporter}: {plural(world, 'process runs', 'processes run')} this command."
        )

    if place is None:
        yield
        return

    context.meta[_RANKS] = place, reporter
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def reports() -> bool:
    """Whether this process prints the report, and exits with 1 for what it found. The
    others write their files only.
    """
    place, reporter = _ranks()
    return place is None or place.number == reporter


def own_file(path: str, *, asked: bool) -> str:
    """The name that this rank gives a file, which is said where the user `asked` for
    another.
    """
    place, reporter = _ranks()
    if place is None:
        return path
    path_of_rank = place.file(path)
    if asked and place.number == reporter:
        click.echo(
            f"Each of {place.world} ranks writes a file of its own: rank {place.number} writes {path_of_rank}.",
            err=True,
        )
    return path_of_rank


def _ranks() -> tuple[Rank | None, int]:
    context = click.get_current_context(silent=True)
    if context is not None:
        found: tuple[Rank | None, int] = context.meta.get(_RANKS, (None, 0))
    else:
        found = (None, 0)
    return found
