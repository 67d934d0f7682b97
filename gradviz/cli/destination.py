"""Where a command writes its file: checked before a script runs for an hour, and a file of its own for each of several ranks."""

from __future__ import annotations

import os

import click

from gradviz.errors import OutputError
from gradviz.ranks.here import rank
from gradviz.ranks.part import MERGED, Given, Part
from gradviz.render.output import refuse_unwritable

_PLACE = "gradviz.destination"  # of a command's context: where it writes, and what stood there before


def destination(path: str, *, asked: bool = True) -> str:
    """The path to write to. Raises OutputError when nothing can be written there.

    Of several ranks each gets its own, which is said where the user `asked` for another, unless they write one together.
    """
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OutputError(f"cannot write {path!r}: there is no folder {folder!r}. Create it first, or choose another.")
    place, plain = rank(), not os.path.exists(path) or os.path.isfile(path)
    part = click.get_current_context().obj
    together = isinstance(part, Part) and part.command in MERGED  # then one file is written, for all
    if isinstance(part, Given) and plain:
        path = part.file(path)
    if place is not None and plain and not together:  # a pipe or a device is everybody's
        own = place.file(path)
        if asked:
            click.echo(f"This is {place}, so it writes {own} and not {path}.", err=True)
        path = own
    refuse_unwritable(path)
    click.get_current_context().meta[_PLACE] = path, _identity(path)
    return path


def written() -> str:
    """The file that the command has written; "" when it is not there, or is as it was. A file is written whole or not at all."""
    context = click.get_current_context(silent=True)
    path, before = context.meta.get(_PLACE, ("", None)) if context is not None else ("", None)
    return path if path and _identity(path) not in (None, before) else ""


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
