"""What goes into what a line computes, as the text says it: from line to line of a
function, and out of functions that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gradviz.graph import SourceLine
from gradviz.source.statements import (
    Body,
    assigned,
    body_around,
    covers,
    method_calls,
    names_of,
    reads,
)

ADDING = ("add", "append", "appendleft", "extend", "insert", "setdefault", "update")
_PLAIN = (ast.Name, ast.Attribute, ast.Constant)


def lines_behind(source: SourceLine | None) -> list[SourceLine]:
    """The lines of the same function that give a value to what a line reads, and to
    what those read in turn: the nearest first.
    """
    if source is None:
        return []
    body = body_around(source.file, source.line)
    statements = _simple(body, source.line)
    wanted = set[str]()
    for statement in statements:
        for part in _computing(statement):
            wanted.update(reads(part))

    lines = []
    for node in reversed(body.statements):
        names, value = _gives(node)
        if value is not None and node not in statements and wanted.intersection(names):
            wanted.update(reads(value))
            lines.append(body.source(node))
    return lines


def _simple(body: Body, number: int) -> list[ast.stmt]:
    """The statements that go over a line and have none inside."""
    nodes = [node for node in body.statements if covers(node, number)]
    return [node for node in nodes if not hasattr(node, "body")]


def _computing(node: ast.stmt) -> Sequence[ast.AST]:
    """The parts of a statement in which something can run: not `aux` of
    `return net(h), aux`.
    """
    value = getattr(node, "value", None)
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    return [part for part in parts if not isinstance(part, _PLAIN)] or [node]


def _gives(node: ast.stmt) -> tuple[Sequence[str], ast.expr | None]:
    """The plain names that a statement gives a value to, or puts one into, and the
    expression that they get it from.
    """
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return list(names_of(node.targets[0].value)), node.value
    for call, method in method_calls(node) if isinstance(node, ast.Expr) else ():
        if method.attr in ADDING:
            return list(names_of(method.value)), call
    return assigned(node)
