"""One notation for formulas, a part of Python's: read once, written as plain text and
as MathML, and computed in the tests.

`@` is a product of matrices, `*` of elements, `sum(x, dim)` keeps its dimension, a
comparison is 1 where it holds and 0 elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from gradviz.formulas.table import Formula

_CONSTANTS = "g n p k s v dim pi slope low high order i j shape"
CONSTANTS = frozenset(_CONSTANTS.split())
"""Names that stand for no tensor that is saved: the arriving gradient, sizes and
options.
"""

_OPERATORS: dict[type, tuple[str, int]] = {
    ast.BitAnd: ("and", 0),
    ast.Gt: (">", 1),
    ast.Lt: ("<", 1),
    ast.GtE: ("≥", 1),
    ast.LtE: ("≤", 1),
    ast.Eq: ("=", 1),
    ast.Add: ("+", 2),
    ast.Sub: ("−", 2),
    ast.Mult: ("·", 3),
    ast.MatMult: ("@", 3),
    ast.Div: ("/", 3),
}
"""The sign of each operator, and how tightly it binds."""

_WORDS = {
    "like": "{0} in the shape of {1}",
    "repeated": "{0} repeated in the shape of {1}",
    "placed": "zeros like {1}, with {0} where the elements came from",
    "sum_to": "{0} summed to the shape of {1}",
    "cast": "{0} in the dtype of {1}",
    "first": "the part of {0} that is {1}",
    "rest": "the part of {0} after {1}",
    "picked": "{0}[{1}]",
    "one_hot": "one_hot({0})",
    "unpermute": "{0} permuted back",
}
"""What a reader sees of functions that only move elements."""


class Written(NamedTuple):
    """An expression as it is written, and how tightly its outermost operator binds."""

    text: str
    strength: float = 9


def plain(expression: str) -> str:
    """The expression as one line of text.

    >>> plain("out * (g - sum(g * out, dim))"), plain("-g * x / y**2"), plain("T(x) @ g")
    ('out · (g − Σ_dim g · out)', '−g · x / y²', 'xᵀ @ g')
    """
    return _written(_parsed(expression)).text


def mathml(expression: str) -> str:
    """The same line for a browser, which draws letters as variables.

    >>> mathml("2 * x")
    '<math><mtext>2\xa0·\xa0</mtext><mi>x</mi></math>'
    """
    # every second piece is a letter
    pieces = enumerate(re.split(r"\b([A-Za-z])\b", plain(expression)))
    elements = [
        f"<mi>{piece}</mi>" if i % 2 else f"<mtext>{escape(piece)}</mtext>"
        for i, piece in pieces
        if piece
    ]
    # MathML drops plain spaces at the ends of a text
    return f"<math>{''.join(elements)}</math>".replace(" ", "\u00a0")


def kept(formula: Formula) -> dict[str, tuple[str, ...]]:
    """What backward needs of the forward pass, each with the inputs whose gradient
    needs its values.

    >>> from gradviz.formulas.table import FORMULA_OF
    >>> kept(FORMULA_OF["MulBackward0"]), kept(FORMULA_OF["SoftmaxBackward0"])
    ({'y': ('x',), 'x': ('y',)}, {'out': ('x',)})
    """
    needed: dict[str, tuple[str, ...]] = {}
    for name, expression in formula.gradients.items():
        for used in dict.fromkeys(_values(_parsed(expression), formula)):
            needed[used] = (*needed.get(used, ()), name)
    return needed


def _values(tree: ast.AST, formula: Formula) -> Iterator[str]:
    """Names of tensors whose numbers an expression reads."""
    if isinstance(tree, ast.Name):
        name = tree.id
        if name in formula.terms:
            yield from _values(_parsed(formula.terms[name]), formula)
        elif name not in CONSTANTS or (name in formula.gradients and name != "g"):
            yield name
        return

    parts = list(ast.iter_child_nodes(tree))
    if isinstance(tree, ast.Call):
        function, *parts = parts
        if isinstance(function, ast.Name) and function.id in _WORDS:
            del parts[1:2]  # of like(g, x) only the shape of x is read
    for part in parts:
        yield from _values(part, formula)


def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _written(node: ast.expr) -> Written:
    """Any expression of the notation."""
    if isinstance(node, ast.Constant):
        return Written(str(node.value))

    if isinstance(node, ast.Name):
        return Written("π" if node.id == "pi" else node.id)

    if isinstance(node, ast.UnaryOp):
        return Written(f"−{_fenced(node.operand, 4)}", 4)

    if isinstance(node, ast.BinOp):
        return _joined(node.op, node.left, node.right)

    if isinstance(node, ast.Compare):
        return _joined(node.ops[0], node.left, node.comparators[0])

    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _called(node.func.id, node.args)

    raise ValueError(f"the notation of formulas has no {ast.unparse(node)!r}")


def _fenced(node: ast.expr, strength: float) -> str:
    """A part, in brackets where it binds less than this."""
    part = _written(node)
    return f"({part.text})" if part.strength < strength else part.text


def _joined(operator: ast.AST, left: ast.expr, right: ast.expr) -> Written:
    """Two operands and what is between them."""
    if isinstance(operator, ast.Pow):
        base, exponent = _fenced(left, 6), _fenced(right, 9)
        if exponent.isdigit():
            return Written(base + exponent.translate(_RAISED), 5)
        return Written(f"{base}^{exponent}", 5)

    sign, strength = _OPERATORS[type(operator)]
    # a - (b - c) needs its brackets, a + (b + c) does not
    behind = strength + 0.5 * (sign in "−/@")
    return Written(
        f"{_fenced(left, strength)} {sign} {_fenced(right, behind)}", strength
    )


def _called(name: str, arguments: list[ast.expr]) -> Written:
    """A function of arguments."""
    first, *others = arguments
    parts = [_written(part).text for part in arguments]
    if name == "T":
        return Written(f"{_fenced(first, 9)}ᵀ")
    if name == "sum":
        over = f"_{parts[1]}" if others else ""
        return Written(f"Σ{over} {_fenced(first, 3)}", 2.5)
    if name in _WORDS:
        words = _WORDS[name]
        return Written(words.format(*parts), 0 if " " in words else 9)
    return Written(f"{name}({', '.join(parts)})")
