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
from gradviz.source.changes import method_calls, pieces_in_place, without_index
from gradviz.source.statements import (
    Body,
    assigned,
    bodies,
    body_around,
    body_at,
    body_of,
    covers,
    expressions_at,
    is_empty,
    line_of,
    loops_around,
    names_of,
    nodes_of,
    own_parts,
    switches,
    text_of,
    tree_of,
)
from gradviz.variables.scanner import Namespace

FOLLOWED = 20  # lines that are followed upwards from one


def matching(file: str, pattern: str) -> Iterator[SourceLine]:
    """The statements of a file whose code, as Python spells it, has a pattern: without
    comments, each where it begins, a block by its head.
    """
    for body, node, head in _heads(file, tree_of(file)):
        if re.search(pattern, head):
            yield body.source(node)


@lru_cache(maxsize=100)
def _heads(file: str, tree: ast.Module) -> list[tuple[Body, ast.stmt, str]]:
    """Every statement of a file, which says this `tree` now, with its first line."""
    heads: list[tuple[Body, ast.stmt, str]] = []
    for body in bodies(file):
        for statement in body.statements:
            node = statement.node
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a docstring does nothing of what it says
            head = ast.unparse(node).partition("\n")[0]
            heads.append((body, node, head))
    return heads


def sets_attribute(file: str, ending: str) -> SourceLine | None:
    """The first line of a file that assigns to something that ends so, such as
    "head.weight" for `self.head.weight = ...`.
    """
    return next(matching(file, rf"\.{re.escape(ending)} = "), None)


def freezes(file: str) -> SourceLine | None:
    """The first line of a file that sets `requires_grad` of something to False."""
    return next(matching(file, r"\.requires_grad(_\(| = )False"), None)


def changes_gradients(source: SourceLine | None) -> bool:
    """Whether the file of a line assigns to a `.grad`, or calls a method of one whose
    name ends in `_`.
    """
    file = source.file if source is not None else ""
    changing = r"\.grad\b(\[.*\])? .?= |\.grad\b(\.data)?\.\w+_\("
    return any(matching(file, changing))


def sets_item(file: str, key: str) -> SourceLine | None:
    """The first line of a file that assigns to an item with this key, such as "lr" for
    `group["lr"] = 0.1`.
    """
    return next(matching(file, rf"\['{re.escape(key)}'\] .?= "), None)


def passes(file: str, keyword: str, value: str) -> list[SourceLine]:
    """The lines of a file that pass a keyword argument with a value, as the code spells
    it.
    """
    lines = {
        argument.value.lineno
        for argument in nodes_of(file, ast.keyword)
        if argument.arg == keyword and ast.unparse(argument.value) == value
    }
    return [line_of(file, number) for number in sorted(lines)]


def lines_behind(source: SourceLine | None, term: str = "") -> list[SourceLine]:
    """The lines of the same function that give a value to what a line, or a term in it,
    reads, and to what those read in turn.
    """
    if source is None:
        return []

    wanted = set(names_of(ast.parse(term)))
    if not term:
        for part in expressions_at(source.file, source.line):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                wanted.add(part.id)

    body, lines = body_around(source.file, source.line), list[SourceLine]()
    for statement in reversed(body.statements):
        names, value = assigned(statement.node)
        if value is not None and wanted.intersection(names) and len(lines) < FOLLOWED:
            lines.append(body.source(statement.node))
            wanted.update(names_of(value))
    return lines


def step_begins(source: SourceLine | None) -> SourceLine | None:
    """The line with which the innermost loop around a line begins."""
    if source is None:
        return None
    loops = loops_around(source.file, source.line)
    return line_of(source.file, loops[-1]) if loops else None


def returned_by(source: SourceLine) -> SourceLine:
    """Where the function that begins at a line returns, if at one place only; else that
    line.
    """
    body = body_at(source.file, source.function, source.line)
    returns = [
        node.value
        for node, _ in body.statements
        if isinstance(node, ast.Return) and node.value is not None
    ]
    return body.source(returns[0]) if len(returns) == 1 else source


def keeps_on_first_argument(code: CodeType) -> SourceLine | None:
    """The first line of a function that reads an attribute of its first argument which
    is not what torch puts there, as `ctx.x`.
    """
    first, body = code.co_varnames[0], body_of(code)
    for statement in body.statements:
        for part in own_parts(statement.node):
            if (
                isinstance(part, ast.Attribute)
                and ast.unparse(part.value) == first
                and part.attr not in _TORCHS
            ):
                return body.source(part)
    return None


_TORCHS = ("saved_tensors", "needs_input_grad", "saved_variables")


def taken_over(source: SourceLine) -> dict[str, SourceLine]:
    """What statements around a line both read and give a value, as
    `out, state = cell(x, state)` does with `state`.
    """
    body = body_around(source.file, source.line)
    lines: dict[str, SourceLine] = {}
    for statement in body.statements:
        parts = own_parts(statement.node)
        read = {
            ast.unparse(part)
            for part in parts
            if isinstance(getattr(part, "ctx", None), ast.Load)
        }
        for name in assigned(statement.node)[0]:
            if name in read:
                lines.setdefault(name, body.source(statement.node))
    return lines


def switch_around(file: str, number: int) -> SourceLine | None:
    """The innermost `with torch.no_grad():` that a line stands in, or
    `@torch.no_grad()` above its function.
    """
    around = [
        switch.lineno
        for node, switch, _ in switches(file)
        if covers(node, number) and (node.lineno < number or not hasattr(node, "items"))
    ]
    return line_of(file, max(around)) if around else None


def inference_modes(file: str) -> list[SourceLine]:
    """The lines of a file that switch inference mode on, for a block or a function."""
    lines = {switch.lineno for _, switch, how in switches(file) if how == "inference"}
    return [line_of(file, number) for number in sorted(lines)]


# -- where the code is at --------------------------------------------------------------


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
    source = body.source
    for statement in body.statements:
        for piece in pieces_in_place(statement.node):
            is_item = isinstance(piece.node, ast.Subscript)
            text = text_of(statement.node if is_item else piece.node)
            yield Change(source(piece.node), piece.name, text)

        for call, method in method_calls(statement.node):
            if method.attr == "step":
                yield Change(
                    source(call),
                    ast.unparse(method.value),
                    text_of(call),
                )


ADDING = ("add", "append", "appendleft", "extend", "insert", "setdefault", "update")


def additions(body: Body) -> dict[str, SourceLine]:
    """Where the code puts something into a container, by the container's name:
    `losses.append(loss)`, `losses[step] = loss`.
    """
    lines: dict[str, SourceLine] = {}
    for statement in body.statements:
        node = statement.node
        targets = node.targets if isinstance(node, ast.Assign) else ()
        into = [target.value for target in targets if isinstance(target, ast.Subscript)]
        if is_empty(getattr(node, "value", None)):
            into = []  # an empty list for a key is filled elsewhere
        into += [
            called.value for _, called in method_calls(node) if called.attr in ADDING
        ]
        for container in into:
            lines.setdefault(
                ast.unparse(without_index(container)),
                body.source(node),
            )

    return lines


def addition_to(file: str, name: str) -> SourceLine | None:
    """The first line of a file that puts something into a container with this last
    name, in whichever function: `self.values`.
    """
    last = name.rpartition(".")[2]
    for body in bodies(file):
        for container, source in additions(body).items():
            if container.rpartition(".")[2] == last:
                return source
    return None


def grad_reads(body: Body) -> dict[str, SourceLine]:
    """Where the code reads `.grad` of a variable, by the variable's name."""
    lines: dict[str, SourceLine] = {}
    for statement in body.statements:
        for part in own_parts(statement.node):
            reads = isinstance(getattr(part, "ctx", None), ast.Load)
            if isinstance(part, ast.Attribute) and part.attr == "grad" and reads:
                lines.setdefault(ast.unparse(part.value), body.source(part))
    return lines
