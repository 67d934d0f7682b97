"""Finds lines of a file by what they do: assign to something, call something, pass an argument. Reads text only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradviz.graph import SourceLine
from gradviz.packages import package_of, with_text
from gradviz.source.statements import (
    around,
    assigned,
    body_around,
    expressions_at,
    own_expressions,
    recording_off,
    tree_of,
)

_FOLLOWED = 20  # lines that are followed upwards from one


def sets_attribute(file: str, *endings: str) -> SourceLine | None:
    """The first line of a file that assigns to something that ends so, such as "head.weight" for `self.head.weight = ...`."""
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        for target in getattr(node, "targets", ()):
            if isinstance(target, ast.Attribute) and f".{ast.unparse(target)}".endswith(
                tuple(f".{one}" for one in endings)
            ):
                return _line(file, target.lineno)
    return None


def only_compares(file: str, attribute: str) -> SourceLine | None:
    """The first line of a file that compares an attribute and does nothing with the answer."""
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        compared = node.value.left if isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare) else None
        if isinstance(compared, ast.Attribute) and compared.attr == attribute:
            return _line(file, compared.lineno)
    return None


def registers_buffer(file: str, name: str) -> SourceLine | None:
    """The first line of a file that registers a buffer of this name."""
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register_buffer":
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and first.value == name:
                return _line(file, node.lineno)
    return None


def calls_method(file: str, method: str) -> Iterator[tuple[str, SourceLine]]:
    """The lines of a file that call a method of this name without arguments, and what they call it on."""
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
            and not node.args
        ):
            yield ast.unparse(node.func.value), _line(file, node.func.end_lineno or node.lineno)


def gives_value(source: SourceLine, name: str) -> SourceLine | None:
    """The last line that gives a value to a dotted name after another line has run, as far as the text tells.

    In other functions the object in front of the first dot may have another name; their `__init__` is left out.
    """
    tree, own = tree_of(source.file), body_around(source.file, source.line)
    inside, found = name.partition(".")[2], None
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Assign):
            continue
        targets = node.targets
        parts = [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
        texts = [ast.unparse(part) for part in parts]
        if name in texts or (inside and any(text.partition(".")[2] == inside for text in texts)):
            body = body_around(source.file, node.lineno)
            here = body is not None and own is not None and body.function == own.function
            if body is not None and (node.lineno > source.line if here else body.function != "__init__"):
                found = node.lineno
    return _line(source.file, found) if found is not None else None


def passes(file: str, keyword: str, *values: str) -> list[SourceLine]:
    """The lines of a file that pass a keyword argument with one of these values, as the code spells them."""
    tree = tree_of(file)
    lines = {
        argument.value.lineno
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call)
        for argument in node.keywords
        if argument.arg == keyword and ast.unparse(argument.value) in values
    }
    return [_line(file, number) for number in sorted(lines)]


def calls_with(file: str, first: str, *endings: str) -> SourceLine | None:
    """The first line of a file that calls something whose name ends so with `first`, or an attribute of that name, in front."""
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        called = isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith(endings)
        if called and f".{ast.unparse(node.args[0])}".endswith(f".{first}"):  # type: ignore[attr-defined]
            return _line(file, node.lineno)  # type: ignore[attr-defined]
    return None


def lines_behind(source: SourceLine) -> list[SourceLine]:
    """The lines of the same function that give a value to what a line reads, and to what those read in turn."""
    body = body_around(source.file, source.line)
    wanted, found = set(_reads(source)), list[SourceLine]()
    for statement in reversed(body.statements if body is not None else ()):
        names, value = assigned(statement.node)
        if value is not None and wanted.intersection(names) and len(found) < _FOLLOWED:
            assert body is not None
            found.append(body.source(statement.node))
            wanted.update(part.id for part in ast.walk(value) if isinstance(part, ast.Name))
    return found


def _reads(source: SourceLine) -> Iterator[str]:
    for expression in expressions_at(source.file, source.line):
        if isinstance(expression, ast.Name) and isinstance(expression.ctx, ast.Load):
            yield expression.id


def taken_over(source: SourceLine) -> dict[str, SourceLine]:
    """What statements around a line both read and give a value, as `out, state = cell(x, state)` does with `state`."""
    body = body_around(source.file, source.line)
    found: dict[str, SourceLine] = {}
    for statement in body.statements if body is not None else ():
        parts = (part for expression in own_expressions(statement.node) for part in ast.walk(expression))
        read = {ast.unparse(part) for part in parts if isinstance(getattr(part, "ctx", None), ast.Load)}
        for name in assigned(statement.node)[0]:
            if name in read and body is not None:
                found.setdefault(name, body.source(statement.node))
    return found


def step_begins(source: SourceLine) -> SourceLine | None:
    """The line with which the innermost loop around a line begins."""
    loops = around(source.file, source.line).loops
    return _line(source.file, loops[-1]) if loops else None


def switch_around(file: str, number: int) -> SourceLine | None:
    """The `with torch.no_grad():`, or the like, that a line stands in, within its function."""
    tree = tree_of(file)
    inside = [
        node.lineno
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, (ast.With, ast.AsyncWith))
        and node.lineno < number <= (node.end_lineno or 0)
        and any(recording_off(item.context_expr) for item in node.items)
    ]
    return _line(file, max(inside)) if inside else None


def switch_above(file: str, first: int) -> SourceLine | None:
    """The `@torch.no_grad()`, or the like, above a function whose first line, decorators included, is this."""
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        decorators = getattr(node, "decorator_list", ())
        if decorators and min(one.lineno for one in decorators) == first:
            return next((_line(file, one.lineno) for one in decorators if recording_off(one)), None)
    return None


def _line(file: str, number: int) -> SourceLine:
    return with_text(SourceLine(file, number, package=package_of(file)))
