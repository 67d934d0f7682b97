"""Statements of the user's code written anew: what changes a tensor in place so that it
makes another one, and what computes something of a leaf so that the result is the leaf.
"""

from __future__ import annotations

import ast
import re
from copy import deepcopy
from typing import Any

from gradviz.graph import SourceLine
from gradviz.source.bindings import dotted
from gradviz.source.feeding import ADDING
from gradviz.source.files import lines_of
from gradviz.source.statements import (
    InPlace,
    assigned,
    body_around,
    called,
    covers,
    given_in_place,
    makes_leaf,
    pieces_in_place,
    reads,
    statements_at,
)
from gradviz.source.syntax import COMPREHENSIONS

_ONLY_IN_PLACE = re.compile(
    r"apply|constant|copy|fill|fill_diagonal|map2?|ones|random|set|zeros?|cauchy|eye|"
    r"exponential|geometric|dirac|orthogonal|sparse|resize_as|(?:\w+_)?(?:normal|uniform)"
)
"""Methods that have no form which returns a new tensor."""


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
    >>> [*map(written, ("y = h.add_(1).sum()", "f(h).add_(1)", "h.zero_()"))]
    [['h.add(1)'], [''], ['']]
    >>> written("y = torch.relu_(h.neg_()).add_(1)")[0]
    'torch.relu(h.neg()).add(1)'
    """
    statement, node, changed = piece
    new: Any = deepcopy(node)
    if isinstance(node, ast.AugAssign):
        new = ast.BinOp(changed, node.op, node.value)
    part = new
    while given := given_in_place(part):
        method = part.func.attr.removesuffix("_")
        if _ONLY_IN_PLACE.fullmatch(method):
            return ""
        part.func.attr = method
        part.keywords = [one for one in part.keywords if one.arg != "inplace"]
        changed = part = given[0]

    is_all = isinstance(statement, ast.Expr) and statement.value is node
    is_alone = is_all or node is statement
    # of a part, or of what nobody holds
    if isinstance(changed, ast.Subscript) or (is_alone and not dotted(changed)):
        return ""
    written = ast.unparse(new)
    return f"{ast.unparse(changed)} = {written}" if is_alone else written


def is_read_later(piece: InPlace, source: SourceLine) -> bool:
    """Whether code below a line reads a variable that a piece of the line changes in
    place, while it gives the result to another one.
    """
    statement, node, _ = piece
    own = getattr(statement, "value", None) is node and isinstance(statement, ast.Expr)
    if own or piece.name in assigned(statement)[0]:
        return False
    body, last = body_around(source.file, source.line), lines_of(statement)[-1]
    after = (each for each in body.statements if each.lineno > last)
    return any(piece.name in reads(each) for each in after)


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
    >>> written("w: Tensor = Parameter(a * 2).t()")
    'w: Tensor = Parameter((a * 2).t())'
    >>> written("w.append(Parameter(a) * 2)")
    'w.append(Parameter(a * 2))'
    >>> written("w = [Parameter(a) * 2 for a in b]")
    'w = [Parameter(a * 2) for a in b]'
    >>> written("p = {'w': torch.ones(3, requires_grad=True) * 2}")
    "p = {'w': (torch.ones(3) * 2).requires_grad_()}"
    >>> written("w = torch.randn(3, requires_grad=True)")
    ''
    """
    values = []
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return)):
        values = _elements(statement.value)
    elif isinstance(statement, ast.Expr) and called(statement.value) in ADDING:
        values = getattr(statement.value, "args", [])
    written = ast.unparse(statement)
    for value in values:
        makers = [part for part in ast.walk(value) if makes_leaf(part)]
        # what makes a leaf and no more is as it should be
        if len(makers) != 1 or makers[0] is value:
            continue
        maker: Any = makers[0]
        leaf, bare = "({}).requires_grad_()", maker
        if called(maker) == "Parameter":
            if len(maker.args) != 1 or isinstance(maker.args[0], ast.Starred):
                continue
            leaf, bare = f"{ast.unparse(maker.func)}({{}})", maker.args[0]
        elif called(maker) == "requires_grad_":
            bare = maker.func.value
        else:
            options = [one for one in maker.keywords if one.arg != "requires_grad"]
            bare = ast.Call(maker.func, maker.args, options)
        whole = ast.unparse(value)
        code = whole.replace(ast.unparse(maker), f"({ast.unparse(bare)})")
        new = ast.parse(leaf.format(code), mode="eval").body
        return written.replace(whole, ast.unparse(new), 1)
    return ""


def _elements(value: Any) -> list[Any]:
    """What a display such as `{"w": a}` has, or else the value itself."""
    if isinstance(value, ast.Dict):
        return value.values
    if isinstance(value, COMPREHENSIONS):
        return [getattr(value, "elt", getattr(value, "value", None))]
    return list(getattr(value, "elts", [value] if value is not None else []))
