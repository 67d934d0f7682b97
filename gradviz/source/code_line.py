"""Statements of the user's code written anew: what changes a tensor in place so that it
makes another one, and what computes something of a leaf so that the result is the leaf.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from gradviz.graph import SourceLine
from gradviz.source.statements import (
    InPlace,
    called,
    covers,
    makes_leaf,
    pieces_in_place,
    statements_at,
)


def without_comment(text: str) -> str:
    """The code of a line."""
    return re.sub(r"\s*#[^'\"]*$", "", text)


def in_place(source: SourceLine | None) -> InPlace | None:
    """The first piece of code on a line that changes something in place."""
    for statement in statements_at(source):
        for piece in pieces_in_place(statement):
            if source is not None and covers(piece.node, source.line):
                return piece
    return None


def out_of_place(piece: InPlace) -> str:
    """What makes a new tensor instead of a piece that changes one; "" where there is no
    such form, as of a part: `h[0] = 1`.

    >>> def written(code):
    ...     return [out_of_place(piece) for piece in pieces_in_place(ast.parse(code).body[0])]
    >>> [*map(written, ("h += a + b", "y = f(h.mul_(2))", "h.add_(1)", "h[0] += 1"))]
    [['h = h + (a + b)'], ['h.mul(2)'], ['h = h.add(1)'], ['']]
    >>> [*map(written, ("torch.relu_(h)", "y = F.relu(h, inplace=True)"))]
    [['h = torch.relu(h)'], ['F.relu(h)']]
    >>> [*map(written, ("y = h.add_(1).sum()", "f(h).add_(1)"))]
    [['h.add(1)'], ['']]
    """
    statement, node, changed = piece
    # of a part, or of what nobody holds
    if isinstance(changed, (ast.Call, ast.Subscript)):
        return ""
    name = ast.unparse(changed)
    if isinstance(node, ast.AugAssign):
        return f"{name} = {ast.unparse(ast.BinOp(changed, node.op, node.value))}"

    method = called(node)
    bare = piece.code.replace(f".{method}(", f".{method.removesuffix('_')}(", 1)
    new = bare.replace(", inplace=True", "")
    alone = isinstance(statement, ast.Expr) and statement.value is node
    return f"{name} = {new}" if alone else new


def as_leaf(source: SourceLine | None) -> str:
    """A line that computes something of a new leaf, written so that its result is the
    leaf; "" for all other lines.
    """
    return next(filter(None, map(_as_leaf, statements_at(source))), "")


def _as_leaf(statement: ast.stmt) -> str:
    """The same of a statement.

    >>> def written(code):
    ...     return _as_leaf(ast.parse(code).body[0])
    >>> written("w = torch.randn(3, requires_grad=True) * 0.01")
    'w = (torch.randn(3) * 0.01).requires_grad_()'
    >>> written("self.w = nn.Parameter(torch.ones(3)).to(device)")
    'self.w = nn.Parameter(torch.ones(3).to(device))'
    >>> written("p = {'w': torch.ones(3, requires_grad=True) * 2}")
    "p = {'w': (torch.ones(3) * 2).requires_grad_()}"
    >>> written("w = torch.randn(3, requires_grad=True)")
    ''
    """
    if not isinstance(statement, (ast.Assign, ast.Return)):
        return ""
    written = ast.unparse(statement)
    for value in _elements(statement.value):
        makers = [part for part in ast.walk(value) if makes_leaf(part)]
        # what makes a leaf and no more is as it should be
        if len(makers) != 1 or makers[0] is value:
            continue
        maker: Any = makers[0]
        leaf = "({}).requires_grad_()"
        code = bare = ast.unparse(maker)
        if called(maker) == "Parameter":
            if len(maker.args) != 1:
                continue
            leaf = f"{ast.unparse(maker.func)}({{}})"
            bare = ast.unparse(maker.args[0])
        option = r"(, |(?<=\())requires_grad=True|\.requires_grad_\(\)$"
        bare = re.sub(option, "", bare)
        whole = ast.unparse(value)
        new = ast.parse(leaf.format(whole.replace(code, bare)), mode="eval").body
        return written.replace(whole, ast.unparse(new), 1)
    return ""


def _elements(value: Any) -> list[Any]:
    """What a display such as `{"w": a}` has, or else the value itself."""
    if isinstance(value, ast.Dict):
        return value.values
    return list(getattr(value, "elts", [value] if value is not None else []))
