"""A notebook as a program: the text of its code cells, without what only IPython runs.
Reads the file as JSON and knows no kernel.

Each cell is code of a file name of its own, `train.ipynb, cell 3`, which `linecache`
has the text of, so tracebacks and readers of source see the cell. Cells are numbered as
Jupyter numbers them when all run from the top: empty ones do not count.
"""

from __future__ import annotations

import ast
import json
import linecache
import re
from typing import NamedTuple

from gradviz.errors import TargetError
from gradviz.wording import CELL, clip, place_text

_AROUND_PYTHON = re.compile(r"%%(time|timeit|capture|prun|gradviz)\b")
_TIMED = re.compile(r"(\s*)%time(?=\s+\S)")
_ONLY_IPYTHON = re.compile(r"\s*[%!?]|\s*[\w.,\s]+=\s*[%!]|.*\?\s*$")


class Notebook(NamedTuple):
    """The text of each cell by file name, and the lines that are left out."""

    cells: dict[str, str]
    left_out: tuple[str, ...]

    @property
    def said(self) -> str:
        """What is left out, in one sentence; "" when nothing is."""
        if self.left_out:
            return (
                f"gradviz leaves out what only IPython runs: {', '.join(self.left_out)}"
            )
        return ""


def read_notebook(path: str, place: str, text: bytes) -> Notebook:
    """The program in the text of a notebook; its cells stand in `linecache` from then
    on.

    Parameters
    ----------
    path
        of the file, from the root on.
    place
        the same as the user gave it, for messages.

    Raises TargetError when the text is no notebook with code in Python.
    """
    cells: dict[str, str] = {}
    left_out: list[str] = []

    for number, source in enumerate(filter(str.strip, _code(place, text)), 1):
        file = f"{path}{CELL}{number}"
        python, lines = _python(source)
        cells[file] = python
        left_out += [
            f"`{clip(line.strip())}` ({place_text(file, row)})" for row, line in lines
        ]
        # without a time stamp, checkcache() never drops an entry
        linecache.cache[file] = (
            len(cells[file]),
            None,
            cells[file].splitlines(keepends=True),
            file,
        )

    return Notebook(cells, tuple(left_out))


def _code(place: str, text: bytes) -> list[str]:
    """The texts of the code cells."""
    try:
        content = json.loads(text)
        language = (
            content.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        )
        sources = [
            "".join(cell["source"])
            for cell in content["cells"]
            if cell["cell_type"] == "code"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TargetError(
            f"{place!r} is not a notebook that can be read: {type(error).__name__}: {error}"
        ) from error

    if language != "python":
        raise TargetError(
            f"{place!r} is a notebook in {language!r}. gradviz runs notebooks in Python."
        )

    return sources


def _python(source: str) -> tuple[str, list[tuple[int, str]]]:
    """A cell as Python, with as many lines, and the lines that are no Python, by
    number.

    Python's own parser says which these are: a `%` that continues an expression is
    none, nor is one in a text.
    """
    lines, left_out = source.split("\n"), list[tuple[int, str]]()
    first = next(i for i, line in enumerate(lines) if line.strip())

    if lines[first].lstrip().startswith("%%"):
        if _AROUND_PYTHON.match(lines[first].lstrip()):
            # an empty line, so that all others keep their numbers
            lines[first] = ""
        else:
            left_out.append((first + 1, lines[first]))
            lines[first:] = [""] * (len(lines) - first)

    while (row := _mistake("\n".join(lines))) is not None:
        if row >= len(lines) or not _ONLY_IPYTHON.match(lines[row]):
            break  # the user's own mistake, which Python tells when it runs
        if timed := _TIMED.match(lines[row]):
            lines[row] = timed[1] + lines[row][timed.end() :].lstrip()
            continue
        left_out.append((row + 1, lines[row]))
        while lines[row].endswith("\\") and row + 1 < len(lines):
            lines[row + 1], lines[row] = (
                lines[row][: _indent(lines[row])] + lines[row + 1].lstrip(),
                "",
            )
            row += 1
        lines[row] = f"{lines[row][: _indent(lines[row])]}pass  # {lines[row].lstrip()}"

    return "\n".join(lines) + "\n", left_out


def _mistake(text: str) -> int | None:
    """The index of the line that does not parse; None when all do."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        return (error.lineno or 1) - 1
    except ValueError:
        pass  # a null byte: Python says so when it runs
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
