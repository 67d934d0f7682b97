"""Which files may be written: one that is new, or that gradviz wrote. What is read or
run is never replaced; any other file only where the user insists.

Knows no format, only patterns that files of ours match.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from gradviz.errors import OutputError
from gradviz.packages import code_files

_BYTES = 1 << 16
"""Of the beginning and of the end of a file, in which its mark stands."""
_INSIST = "add --force (in Python force=True) to write it all the same"


def refuse_to_replace(
    path: str | os.PathLike[str],
    *,
    suffixes: Collection[str],
    marks: Iterable[bytes],
    inputs: Iterable[str] = (),
    force: bool = False,
) -> None:
    """Raise OutputError where a file must stay as it is. Links are followed.

    Parameters
    ----------
    path
        where to write.
    suffixes
        in lower case, of what is written.
    marks
        patterns, of which each file that gradviz wrote matches one.
    inputs
        what is read beside the code of this process.
    force
        replace a file that gradviz did not write, and take any suffix.
    """
    target = os.path.realpath(path)
    is_there = os.path.exists(target)
    if is_there and not os.path.isfile(target):
        return  # a pipe or a device keeps what it has

    name = os.fspath(path)
    if is_there:
        mine = os.stat(target)
        reads = [(file, "this command reads it") for file in inputs]
        runs = [(file, "this program runs it") for file in code_files()]
        for file, why in (*reads, *runs):
            if _is_at(mine, file):
                raise OutputError(
                    f"cannot write {name!r}: {why}. Choose another file name."
                )
    if force:
        return

    suffix = os.path.splitext(target)[1].lower()
    if suffix and suffix not in suffixes:
        raise OutputError(
            f"cannot write {name!r}: the suffix should be {' or '.join(suffixes)}, not {suffix!r}. "
            f"Choose another file name, or {_INSIST}."
        )
    if is_there and not _is_ours(target, marks):
        raise OutputError(
            f"cannot write {name!r}: the file is there and gradviz did not write it. "
            f"Choose another file name, or {_INSIST}."
        )


def _is_at(status: os.stat_result, file: str) -> bool:
    try:
        return os.path.samestat(status, os.stat(file))
    except (OSError, ValueError):  # code may come from no file
        return False


def _is_ours(target: str, marks: Iterable[bytes]) -> bool:
    """Whether a file is empty, or has a mark of ours."""
    try:
        with open(target, "rb") as file:
            ends = file.read(_BYTES)
            rest = os.path.getsize(target) - _BYTES
            if rest > 0:
                file.seek(max(_BYTES, rest))
                ends += file.read()
    except OSError:
        return False
    return not ends or any(re.search(mark, ends) for mark in marks)
