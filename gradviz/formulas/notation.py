"""One notation for formulas, a part of Python's: read once, written as plain text and
as MathML, and computed in the tests.

`@` is a product of matrices, `*` of elements, `sum(x, dim)` keeps its dimension, a
comparison is 1 where it holds and 0 elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from html import escape
from typing import NamedTuple

from gradviz.formulas.table import Formula

CONSTANTS = frozenset(
    (
        "g",
        "n",
        "p",
        "k",
        "s",
        "v",
        "dim",
        "pi",
        "slope",
        "low",
        "high",
        "order",
        "i",
        "j",
        "shape",
    )
)
"""Names that stand for no tensor that is saved: the arriving gradient, sizes and
options.
"""
_SIGNS = {
    ast.Add: "+", ast.Sub: "−", ast.Mult: "·", ast.MatMult: "@", ast.Div: "/", ast.BitAnd: "and", ast.Pow: "^",
    ast.Gt: ">", ast.Lt: "<", ast.GtE: "≥", ast.LtE: "≤", ast.Eq: "=",
}  # fmt: skip
_STRENGTH = {
    ast.BitAnd: 0,
    ast.Compare: 1,
    ast.Add: 2,
    ast.Sub: 2,
    ast.Mult: 3,
    ast.MatMult: 3,
    ast.Div: 3,
    ast.Pow: 5,
}
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
_GREEK = {"pi": "π"}


class Written(NamedTuple):
    """An expression as it is written, and how tightly its outermost operator binds."""

    text: str
    strength: float = 9


Writer = Callable[[ast.expr, str, list[Written]], Written]


def plain(expression: str) -> str:
    """The expression as one line of text.

    >>> plain("out * (g - sum(g * out, dim))"), plain("-g * x / y**2"), plain("T(x) @ g")
    ('out · (g − Σ_dim g · out)', '−g · x / y²', 'xᵀ @ g')
    """
    return _written(_parsed(expression), _plain).text


def mathml(expression: str) -> str:
    """The same for a browser, which draws and speaks it.

    >>> mathml("g / x")
    '<math><mfrac><mi>g</mi><mi>x</mi></mfrac></math>'
    """
    return f"<math>{_written(_parsed(expression), _mathml).text}</math>"


def kept(
    formula: Formula,
) -> dict[str, tuple[str, ...]]:
    """What backward needs of the forward pass, each with the inputs whose gradient
    needs its values.

    >>> from gradviz.formulas.table import FORMULA_OF
    >>> kept(FORMULA_OF["MulBackward0"]), kept(FORMULA_OF["SoftmaxBackward0"])
    ({'y': ('x',), 'x': ('y',)}, {'out': ('x',)})
    """
    needed: dict[str, list[str]] = {}
    for name, expression in formula.gradients.items():
        for used in _values(_parsed(expression), formula):
            if name not in (found := needed.setdefault(used, [])):
                found.append(name)
    return {used: tuple(names) for used, names in needed.items()}


def _values(tree: ast.expr, formula: Formula) -> list[str]:
    """Names of tensors whose numbers an expression reads; of `like(g, x)` only the
    shape of x is read.
    """
    found, waiting = dict[str, None](), [tree]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in _WORDS:
                waiting[:0] = [*node.args[:1], *node.args[2:]]
            else:
                waiting[:0] = node.args
        elif isinstance(node, ast.Name) and node.id in formula.terms:
            waiting.insert(0, _parsed(formula.terms[node.id]))
        elif isinstance(node, ast.Name):
            if node.id not in CONSTANTS or (
                node.id in formula.gradients and node.id != "g"
            ):
                found[node.id] = None
        else:
            waiting[:0] = [
                part
                for part in ast.iter_child_nodes(node)
                if isinstance(part, ast.expr)
            ]

    return list(found)


def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def _written(node: ast.expr, write: Writer) -> Written:
    """Both ways of writing go through the same parts; `write` joins what is written of
    the parts.
    """
    if isinstance(node, ast.Constant):
        return write(node, str(node.value), [])

    if isinstance(node, ast.Name):
        return write(
            node,
            _GREEK.get(node.id, node.id),
            [],
        )

    if isinstance(node, ast.UnaryOp):
        return write(node, "−", [_written(node.operand, write)])

    if isinstance(node, ast.BinOp):
        return write(
            node,
            _SIGNS[type(node.op)],
            [_written(node.left, write), _written(node.right, write)],
        )

    if isinstance(node, ast.Compare):
        (comparison,), (right,) = node.ops, node.comparators
        return write(
            node,
            _SIGNS[type(comparison)],
            [_written(node.left, write), _written(right, write)],
        )

    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return write(
            node,
            node.func.id,
            [_written(part, write) for part in node.args],
        )

    raise ValueError(f"the notation of formulas has no {ast.unparse(node)!r}")


def _strength(node: ast.expr) -> int:
    return _STRENGTH[type(node.op) if isinstance(node, ast.BinOp) else ast.Compare]


# -- plain text ------------------------------------------------------------------------

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _plain(
    node: ast.expr,
    sign: str,
    parts: list[Written],
) -> Written:
    if not parts:
        return Written(sign)

    if isinstance(node, ast.Call):
        return _called(
            sign,
            [part.text for part in parts],
            parts[0],
        )

    if isinstance(node, ast.UnaryOp):
        return Written(f"−{_bracketed(parts[0], 4)}", 4)

    strength = _strength(node)
    left, right = (
        _bracketed(parts[0], strength),
        _bracketed(parts[1], strength + 0.5 * (sign in "−/^@")),
    )
    if sign == "^":
        left = _bracketed(parts[0], 6)
        if right.isdigit():
            power = right.translate(_RAISED)
        else:
            power = f"^{_bracketed(parts[1], 9)}"
        return Written(f"{left}{power}", 5)

    return Written(f"{left} {sign} {right}", strength)


def _called(
    name: str,
    parts: list[str],
    first: Written,
) -> Written:
    if name == "T":
        return Written(f"{_bracketed(first, 9)}ᵀ")

    if name == "sum":
        return Written(
            f"Σ{f'_{parts[1]}' if len(parts) > 1 else ''} {_bracketed(first, 3)}", 2.5
        )

    if name in _WORDS:
        return Written(
            _WORDS[name].format(*parts),
            0 if " " in _WORDS[name] else 9,
        )

    return Written(f"{name}({', '.join(parts)})")


def _bracketed(part: Written, strength: float) -> str:
    return f"({part.text})" if part.strength < strength else part.text


# -- MathML ----------------------------------------------------------------------------


def _mathml(
    node: ast.expr,
    sign: str,
    parts: list[Written],
) -> Written:
    if not parts:
        return Written(
            _tag(
                "mn" if isinstance(node, ast.Constant) else "mi",
                escape(sign),
            )
        )

    if isinstance(node, ast.Call):
        return _called_in_mathml(sign, parts)

    if isinstance(node, ast.UnaryOp):
        return Written(
            _row(_operator(sign), _fenced(parts[0], 4)),
            4,
        )

    strength = _strength(node)
    if sign == "/":
        return Written(_tag("mfrac", parts[0].text + parts[1].text))

    if sign == "^":
        return Written(
            _tag(
                "msup",
                _fenced(parts[0], 6) + parts[1].text,
            ),
            5,
        )

    right = _fenced(parts[1], strength + 0.5 * (sign in "−@"))
    return Written(
        _row(
            _fenced(parts[0], strength),
            _operator(sign),
            right,
        ),
        strength,
    )


def _called_in_mathml(name: str, parts: list[Written]) -> Written:
    if name == "T":
        return Written(
            _tag(
                "msup",
                _fenced(parts[0], 9) + _tag("mi", "T"),
            )
        )

    if name == "sqrt":
        return Written(_tag("msqrt", parts[0].text))

    if name == "sum":
        sign = _operator("∑")
        if len(parts) > 1:
            over = _tag("munder", sign + parts[1].text)
        else:
            over = sign
        return Written(
            _row(over, _fenced(parts[0], 3)),
            2.5,
        )

    if name in _WORDS:
        return Written(_row(*_around(_WORDS[name], parts)), 0)

    listed = _operator(",").join(part.text for part in parts)
    return Written(_row(_tag("mi", escape(name)), _in_brackets(listed)))


def _around(
    words: str,
    parts: list[Written],
) -> list[str]:
    """A sentence with formulas in it."""
    pieces = words.replace("{0}", "\0" + "0\0").replace("{1}", "\0" + "1\0").split("\0")
    texts = []
    for piece in filter(None, pieces):
        if piece in ("0", "1"):
            texts.append(parts[int(piece)].text)
        else:
            # MathML drops plain spaces at the ends of a text
            texts.append(_tag("mtext", escape(piece).replace(" ", "\u00a0")))

    return texts


def _fenced(part: Written, strength: float) -> str:
    return _row(_in_brackets(part.text)) if part.strength < strength else part.text


def _in_brackets(content: str) -> str:
    """Brackets grow with a fraction, and with nothing else."""
    left, right = (
        _operator(sign) if "<mfrac>" in content else f'<mo stretchy="false">{sign}</mo>'
        for sign in ("(", ")")
    )
    return left + content + right


def _row(*parts: str) -> str:
    return _tag("mrow", "".join(parts))


def _operator(sign: str) -> str:
    return _tag("mo", escape(sign))


def _tag(name: str, content: str) -> str:
    return f"<{name}>{content}</{name}>"
