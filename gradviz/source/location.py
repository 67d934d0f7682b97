"""Where the user's code is at, and what the statements there do, as far as their text shows it. Runs nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import NamedTuple

from gradviz.graph import SourceLine
from gradviz.source.statements import (
    Body,
    bodies,
    body_at,
    body_of,
    method_calls,
    own_expressions,
    pieces_in_place,
    text_of,
    without_index,
)
from gradviz.variables.scanner import Namespace


class CodeLocation(NamedTuple):
    """Where the user's code is at. `line` is None when it has ended."""

    body: Body
    line: int | None
    variables: Sequence[Namespace]


class Change(NamedTuple):
    """A line of code that changes a variable in place."""

    source: SourceLine
    names: tuple[str, ...]
    what: str  # as the code spells it


def location_at(code: CodeType, line: int | None, variables: Sequence[Namespace]) -> CodeLocation | None:
    """The place in a function that is running."""
    body = body_of(code)
    return CodeLocation(body, line, variables) if body is not None else None


def location_at_end(variables: Sequence[Namespace]) -> CodeLocation | None:
    """The end of a script whose global variables these are."""
    file = variables[-1].get("__file__") if variables else None
    body = body_at(file) if isinstance(file, str) else None
    return CodeLocation(body, None, variables) if body is not None else None


def changes(location: CodeLocation) -> Iterator[Change]:
    """The statements that change a tensor in place, or take a step, as far as their text shows it."""
    source = location.body.source
    for statement in location.body.statements:
        for piece in pieces_in_place(statement.node):
            whole = statement.node if isinstance(piece.node, ast.Subscript) else piece.node
            yield Change(source(piece.node), (piece.name,), text_of(whole))
        for call, called in method_calls(statement.node):
            if called.attr == "step":
                yield Change(source(call), (ast.unparse(called.value),), text_of(call))


_ADDING = ("add", "append", "appendleft", "extend", "insert", "setdefault", "update")


def additions(location: CodeLocation) -> dict[str, SourceLine]:
    """Where the code puts something into a container, by the container's name: `losses.append(loss)`, `losses[step] = loss`."""
    lines: dict[str, SourceLine] = {}
    for statement in location.body.statements:
        node = statement.node
        into = [target.value for target in getattr(node, "targets", ()) if isinstance(target, ast.Subscript)]
        into += [called.value for _, called in method_calls(node) if called.attr in _ADDING]
        for container in into:
            lines.setdefault(ast.unparse(without_index(container)), location.body.source(node))
    return lines


def addition_to(file: str, name: str) -> SourceLine | None:
    """The first line of a file that puts something into a container with this last name, in whichever function: `self.values`."""
    last = name.rpartition(".")[2]
    for body in bodies(file):
        for container, source in additions(CodeLocation(body, None, ())).items():
            if container.rpartition(".")[2] == last:
                return source
    return None


def grad_reads(location: CodeLocation) -> dict[str, SourceLine]:
    """Where the code reads `.grad` of a variable, by the variable's name."""
    lines: dict[str, SourceLine] = {}
    for statement in location.body.statements:
        for expression in own_expressions(statement.node):
            for node in ast.walk(expression):
                if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load):
                    lines.setdefault(ast.unparse(node.value), location.body.source(node))
    return lines
