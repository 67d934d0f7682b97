"""Where a command writes its file: checked before a script runs for an hour, and a file of its own for each of several ranks."""

from __future__ import annotations

import os

import click

from gradviz.errors import OutputError
from gradviz.ranks import rank
from gradviz.render.output import refuse_unwritable


def destination(path: str, *, asked: bool = True) -> str:
    """The path to write to. Raises OutputError when nothing can be written there.

    Of several ranks each gets its own, which is said where the user `asked` for another.
    """
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OutputError(f"cannot write {path!r}: there is no folder {folder!r}. Create it first, or choose another.")
    place, plain = rank(), not os.path.exists(path) or os.path.isfile(path)
    if place is not None and plain:  # a pipe or a device is everybody's
        own = place.file(path)
        if asked:
            click.echo(f"This is {place}, so it writes {own} and not {path}.", err=True)
        path = own
    refuse_unwritable(path)
    return path
