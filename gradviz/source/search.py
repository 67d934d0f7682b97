"""Finds lines of code by what their text says they do: assign to something, call it,
change it in place, compute for nobody.

In a file, around a line, or in the function where the user's code is at. Reads text
only and runs nothing; whether such a line ran, and on what, is for whoever asks to find
out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

from gradviz.graph import SourceLine
from gradviz.source.changes import method_calls, pieces_in_place
from gradviz.source.feeding import ADDING, lines_behind as lines_behind
from gradviz.source.statements import (
    EMPTY,
    Body,
    assigned,
    bodies,
    body_around,
    body_at,
    body_of,
    covers,
    line_of,
    nodes_of,
    reads,
    recording_off,
    text_of,
    tree_of,
)
from gradviz.variables.scanner import Namespace

# -- in a file -------------------------------------------------------------------------


def matching(
    file: str, pattern: str, function: Body | None = None
) -> Iterator[tuple[SourceLine, re.Match[str]]]:
    """The statements of a file, or of a function, whose code as Python spells it has a
    pattern, at each place: without comments, a block by its head. Each with the line
    where it begins.
    """
    for body, node, head in _heads(file, tree_of(file)):
        if function in (None, body):
            for match in re.finditer(pattern, head):
                yield body.source(node), match


def _first(file: str, pattern: str) -> SourceLine | None:
    return next((source for source, _ in matching(file, pattern)), None)


@lru_cache(maxsize=100)
def _heads(
    file: str,
    tree: ast.Module,
) -> list[tuple[Body, ast.stmt, str]]:
    """Every statement of a file, which says this `tree` now, with its first line."""
    heads: list[tuple[Body, ast.stmt, str]] = []
    for body in bodies(file):
        for node, _ in body.statements:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a docstring does nothing of what it says
            head = ast.unparse(node).partition("\n")[0]
            heads.append((body, node, head))
    return heads


def sets_attribute(file: str, ending: str) -> SourceLine | None:
    """The first line of a file that assigns to something that ends so, such as
    "head.weight" for `self.head.weight = ...`.
    """
    return _first(file, rf"\.{re.escape(ending)} = ")


def freezes(file: str) -> SourceLine | None:
    """The first line of a file that sets `requires_grad` of something to False."""
    return _first(file, r"\.requires_grad(_\(| = )False")


def passes(
    file: str,
    keyword: str,
    value: str,
) -> list[SourceLine]:
    """The lines of a file that pass a keyword argument with a value, as the code spells
    it.
    """
    keywords = [part for part in nodes_of(file, ast.keyword) if part.arg == keyword]
    values = [part.value for part in keywords]
    return [line_of(file, part.lineno) for part in values if ast.unparse(part) == value]


def inference_modes(file: str) -> list[SourceLine]:
    """The lines of a file that switch inference mode on, for a block or a function."""
    lines: dict[int, SourceLine] = {}
    for body in bodies(file):
        for _, off in body.statements:
            if off is not None and recording_off(off) == "inference":
                lines[off.lineno] = body.source(off)
    return [lines[number] for number in sorted(lines)]


def switch_around(file: str, number: int) -> SourceLine | None:
    """The innermost `with torch.no_grad():` that a line stands in, or
    `@torch.no_grad()` above its function.
    """
    body = body_around(file, number)
    switches = [off for node, off in body.statements if off and covers(node, number)]
    return body.source(switches[-1]) if switches else None


def addition_to(file: str, name: str) -> SourceLine | None:
    """The first line of a file that puts something into a container with this last
    name, in whichever function: `self.values`.
    """
    last = name.rpartition(".")[2]
    # `self.values` here is `agent.values` to the caller
    for line, match in matching(file, _ADDITION):
        if match[1].rpartition(".")[2] == last:
            return line
    return None


# -- around a line ---------------------------------------------------------------------


def returned_by(source: SourceLine) -> SourceLine:
    """Where the function that begins at a line returns, if at one place only; else that
    line.
    """
    body = body_at(source.file, source.function, source.line)
    returns = [line for line, _ in matching(source.file, "^return ", body)]
    return returns[0] if len(returns) == 1 else source


def keeps_on_first_argument(code: CodeType) -> SourceLine | None:
    """The first line of a function that reads an attribute of its first argument which
    is not what torch puts there, as `ctx.x`.
    """
    own = "(?!saved_tensors|needs_input_grad|saved_variables)"
    pattern = rf"\b{code.co_varnames[0]}\.{own}\w"
    lines = matching(code.co_filename, pattern, body_of(code))
    return next((line for line, _ in lines), None)


def taken_over(source: SourceLine) -> dict[str, SourceLine]:
    """What statements around a line both read and give a value, as
    `out, state = cell(x, state)` does with `state`.
    """
    body = body_around(source.file, source.line)
    lines: dict[str, SourceLine] = {}
    for node, _ in body.statements:
        names, value = assigned(node)
        read = set(reads(value)) if value is not None else set()
        for name in read.intersection(names):
            lines.setdefault(name, body.source(node))
    return lines


# -- in a function ---------------------------------------------------------------------


class CodeLocation(NamedTuple):
    """Where the user's code is at. `line` is None when it has ended."""

    body: Body
    line: int | None
    variables: Sequence[Namespace]


class Change(NamedTuple):
    """A line of code that changes a variable in place."""

    source: SourceLine
    name: str
    what: str  # as the code spells it


def changes(body: Body) -> Iterator[Change]:
    """The statements that change a tensor in place, or take a step, as far as their
    text shows it.
    """
    for statement, _ in body.statements:
        for piece in pieces_in_place(statement):
            is_item = isinstance(piece.node, ast.Subscript)
            text = text_of(statement if is_item else piece.node)
            yield Change(body.source(piece.node), piece.name, text)

        for call, method in method_calls(statement):
            if method.attr == "step":
                name = ast.unparse(method.value)
                yield Change(body.source(call), name, text_of(call))


_ADDED = rf"\.(?:{'|'.join(ADDING)})\(|\[[^=]*\] = (?!{EMPTY}$)"
# an empty list for a key is filled elsewhere
_ADDITION = rf"([\w.]+?)(?:\[[^=]*?\])?(?:{_ADDED})"


def additions(body: Body) -> dict[str, SourceLine]:
    """Where the code puts something into a container, by the container's name:
    `losses.append(loss)`, `losses[step] = loss`.
    """
    lines: dict[str, SourceLine] = {}
    for line, match in matching(body.file, _ADDITION, body):
        lines.setdefault(match[1], line)
    return lines


_GRAD = r"([\w.\[\]]+)\.grad\b(?! [-+*/]?= )"


def grad_reads(body: Body) -> dict[str, SourceLine]:
    """Where the code reads `.grad` of a variable, by the variable's name."""
    lines: dict[str, SourceLine] = {}
    for line, match in matching(body.file, _GRAD, body):
        lines.setdefault(match[1], line)
    return lines
