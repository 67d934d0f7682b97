"""Which pieces of a statement change something in place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from gradviz.source.statements import subject

# `add_`, as torch names what changes a tensor
_METHOD = re.compile(r"_?[a-z](\w*[a-z0-9])?_")


class InPlace(NamedTuple):
    """A piece of code that changes something in place: a whole statement, a target such
    as `h[0]`, or a call.
    """

    node: ast.AST
    changed: ast.expr

    @property
    def name(self) -> str:
        """What holds the tensor that is changed, as the code calls it: "self.h" of
        `self.h.data[0] += 1`.
        """
        holder: Any = self.changed
        # a part, or the bare numbers, of a tensor
        while (
            isinstance(holder, ast.Subscript) or getattr(holder, "attr", "") == "data"
        ):
            holder = holder.value
        return ast.unparse(holder)


def pieces_in_place(statement: ast.stmt) -> Iterator[InPlace]:
    """The pieces of a statement that change something in place, but not of the
    statements inside it.

    >>> [(piece.name, ast.unparse(piece.node)) for piece in pieces_in_place(ast.parse("h[0] = g.add_(torch.relu_(f))").body[0])]
    [('h', 'h[0]'), ('g', 'g.add_(torch.relu_(f))'), ('f', 'torch.relu_(f)')]
    """
    if isinstance(statement, ast.AugAssign):
        yield InPlace(statement, statement.target)
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Subscript):
            yield InPlace(target, target)
    for call, method in method_calls(statement):
        if _METHOD.fullmatch(method.attr):
            yield from (InPlace(call, changed) for changed in subject(call))


def method_calls(
    statement: ast.stmt,
) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """The calls of methods, and of functions of modules, that a statement makes, each
    with what it calls; none of the head of a block.
    """
    for node in ast.walk(statement) if not hasattr(statement, "body") else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func
