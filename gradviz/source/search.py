"""Finds lines of a file by what they do: assign to something, call something, pass an argument. Reads text only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from gradviz.graph import SourceLine
from gradviz.source.statements import (
    around,
    assigned,
    body_around,
    body_at,
    expressions_at,
    line_of,
    nodes_of,
    own_expressions,
    recording_off,
)

_FOLLOWED = 20  # lines that are followed upwards from one


def sets_attribute(file: str, *endings: str) -> SourceLine | None:
    """The first line of a file that assigns to something that ends so, such as "head.weight" for `self.head.weight = ...`."""
    dotted = tuple(f".{ending}" for ending in endings)
    for statement in nodes_of(file, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Attribute) and f".{ast.unparse(target)}".endswith(dotted):
                return line_of(file, target.lineno)
    return None


def only_compares(file: str, attribute: str) -> SourceLine | None:
    """The first line of a file that compares an attribute and does nothing with the answer."""
    for statement in nodes_of(file, ast.Expr):
        compared = statement.value.left if isinstance(statement.value, ast.Compare) else None
        if isinstance(compared, ast.Attribute) and compared.attr == attribute:
            return line_of(file, compared.lineno)
    return None


def registers_buffer(file: str, name: str) -> SourceLine | None:
    """The first line of a file that registers a buffer of this name."""
    for call in _calls_of(file, "register_buffer"):
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and first.value == name:
            return line_of(file, call.lineno)
    return None


def calls_method(file: str, method: str, *, bare: bool = True) -> Iterator[tuple[str, SourceLine]]:
    """The lines of a file that call a method of this name, and what they call it on. `bare`: only those without arguments."""
    for call in _calls_of(file, method):
        if not (bare and call.args):
            yield ast.unparse(call.func.value), line_of(file, call.func.end_lineno or call.lineno)


def _calls_of(file: str, method: str) -> Iterator[Any]:
    calls = nodes_of(file, ast.Call)
    return (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == method)


def gives_value(source: SourceLine, name: str) -> SourceLine | None:
    """The last line that gives a value to a dotted name after another line has run, as far as the text tells.

    In other functions the object in front of the first dot may have another name; their `__init__` is left out.
    """
    own = body_around(source.file, source.line)
    inside, last = name.partition(".")[2], None
    for node in nodes_of(source.file, ast.Assign):
        parts = [part for target in node.targets for part in getattr(target, "elts", [target])]
        texts = [ast.unparse(part) for part in parts]
        if name in texts or (inside and any(text.partition(".")[2] == inside for text in texts)):
            body = body_around(source.file, node.lineno)
            here = body is not None and own is not None and body.function == own.function
            if body is not None and (node.lineno > source.line if here else body.function != "__init__"):
                last = node.lineno
    return line_of(source.file, last) if last is not None else None


def passes(file: str, keyword: str, *values: str) -> list[SourceLine]:
    """The lines of a file that pass a keyword argument with one of these values, as the code spells them."""
    lines = {
        argument.value.lineno
        for call in nodes_of(file, ast.Call)
        for argument in call.keywords
        if argument.arg == keyword and ast.unparse(argument.value) in values
    }
    return [line_of(file, number) for number in sorted(lines)]


def calls_with(file: str, first: str, *endings: str) -> SourceLine | None:
    """The first line of a file that calls something whose name ends so with `first`, or an attribute of that name, in front."""
    for call in nodes_of(file, ast.Call):
        argument = f".{ast.unparse(call.args[0])}" if call.args else ""
        if argument.endswith(f".{first}") and ast.unparse(call.func).endswith(endings):
            return line_of(file, call.lineno)
    return None


def lines_behind(source: SourceLine, term: str = "") -> list[SourceLine]:
    """The lines of the same function that give a value to what a line, or a term in it, reads, and to what those read in turn."""
    body = body_around(source.file, source.line)
    in_term = {part.id for part in ast.walk(ast.parse(term)) if isinstance(part, ast.Name)}
    wanted, lines = in_term or set(_reads(source)), list[SourceLine]()
    for statement in reversed(body.statements if body is not None else ()):
        names, value = assigned(statement.node)
        if value is not None and wanted.intersection(names) and len(lines) < _FOLLOWED:
            assert body is not None
            lines.append(body.source(statement.node))
            wanted.update(part.id for part in ast.walk(value) if isinstance(part, ast.Name))
    return lines


def _reads(source: SourceLine) -> Iterator[str]:
    for expression in expressions_at(source.file, source.line):
        if isinstance(expression, ast.Name) and isinstance(expression.ctx, ast.Load):
            yield expression.id


def returned_by(source: SourceLine) -> SourceLine:
    """Where the function that begins at a line returns, if at one place only; else that line."""
    body = body_at(source.file, source.function, source.line)
    return body.source(body.returns[0]) if body is not None and len(body.returns) == 1 else source


def taken_over(source: SourceLine) -> dict[str, SourceLine]:
    """What statements around a line both read and give a value, as `out, state = cell(x, state)` does with `state`."""
    body = body_around(source.file, source.line)
    lines: dict[str, SourceLine] = {}
    for statement in body.statements if body is not None else ():
        parts = (part for expression in own_expressions(statement.node) for part in ast.walk(expression))
        read = {ast.unparse(part) for part in parts if isinstance(getattr(part, "ctx", None), ast.Load)}
        for name in assigned(statement.node)[0]:
            if name in read and body is not None:
                lines.setdefault(name, body.source(statement.node))
    return lines


def step_begins(source: SourceLine) -> SourceLine | None:
    """The line with which the innermost loop around a line begins."""
    loops = around(source.file, source.line).loops
    return line_of(source.file, loops[-1]) if loops else None


def switch_around(file: str, number: int) -> SourceLine | None:
    """The `with torch.no_grad():`, or the like, that a line stands in, within its function."""
    inside = [
        node.lineno
        for node in nodes_of(file, ast.With, ast.AsyncWith)
        if node.lineno < number <= node.end_lineno and any(recording_off(item.context_expr) for item in node.items)
    ]
    return line_of(file, max(inside)) if inside else None


def switch_above(file: str, first: int) -> SourceLine | None:
    """The `@torch.no_grad()`, or the like, above a function whose first line, decorators included, is this."""
    for node in nodes_of(file, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        lines = [decorator.lineno for decorator in node.decorator_list]
        if lines and min(lines) == first:
            switches = (decorator for decorator in node.decorator_list if recording_off(decorator))
            return next((line_of(file, switch.lineno) for switch in switches), None)
    return None
