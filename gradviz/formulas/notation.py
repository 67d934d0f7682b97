"""One notation for formulas, a part of Python's: read once, written as plain text and
as MathML, and computed in the tests.

`@` is a product of matrices, `*` of elements, `sum(x, dim)` keeps its dimension, a
comparison is 1 where it holds and 0 elsewhere.
"""

from __future__ import annotations

import ast
import re
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


def plain(expression: str) -> str:
    """The expression as one line of text.

    >>> plain("out * (g - sum(g * out, dim))"), plain("-g * x / y**2"), plain("T(x) @ g")
    ('out · (g − Σ_dim g · out)', '−g · x / y²', 'xᵀ @ g')
    """
    return _Plain().written(_parsed(expression)).text


def mathml(expression: str) -> str:
    """The same for a browser, which draws and speaks it.

    >>> mathml("g / x")
    '<math><mfrac><mi>g</mi><mi>x</mi></mfrac></math>'
    """
    return f"<math>{_MathML().written(_parsed(expression)).text}</math>"


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


# -- two ways of writing ---------------------------------------------------------------

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class _Plain:
    """One line of text. What MathML writes otherwise is a method."""

    looser = "−/^@"  # signs that need brackets around an equal one at their right

    def written(self, node: ast.expr) -> Written:
        """Any expression of the notation."""
        if isinstance(node, ast.Constant):
            return Written(self.atom("mn", str(node.value)))

        if isinstance(node, ast.Name):
            return Written(self.atom("mi", _GREEK.get(node.id, node.id)))

        if isinstance(node, ast.UnaryOp):
            operand = self.fenced(self.written(node.operand), 4)
            return Written(self.row(self.sign("−"), operand), 4)

        if isinstance(node, ast.BinOp):
            return self.joined(node.op, _STRENGTH[type(node.op)], node.left, node.right)

        if isinstance(node, ast.Compare):
            (comparison,), (right,) = node.ops, node.comparators
            return self.joined(comparison, _STRENGTH[ast.Compare], node.left, right)

        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.called(node.func.id, [self.written(part) for part in node.args])

        raise ValueError(f"the notation of formulas has no {ast.unparse(node)!r}")

    def joined(
        self, operator: ast.AST, strength: int, first: ast.expr, second: ast.expr
    ) -> Written:
        """Two operands and what is between them."""
        sign, left, right = (
            _SIGNS[type(operator)],
            self.written(first),
            self.written(second),
        )
        if sign == "^":
            return Written(self.power(self.fenced(left, 6), right), 5)
        if sign == "/" and "/" not in self.looser:
            return Written(self.fraction(left.text, right.text))

        behind = self.fenced(right, strength + 0.5 * (sign in self.looser))
        before = self.fenced(left, strength)
        return Written(self.row(before, self.sign(f" {sign} "), behind), strength)

    def called(self, name: str, parts: list[Written]) -> Written:
        """A function of parts."""
        first, *others = parts
        if name == "T":
            return Written(self.transposed(self.fenced(first, 9)))
        if name == "sum":
            over = others[0].text if others else ""
            return Written(self.total(over, self.fenced(first, 3)), 2.5)
        if name in _WORDS:
            return self.sentence(_WORDS[name], [part.text for part in parts])
        return self.listed(name, [part.text for part in parts])

    def fenced(self, part: Written, strength: float) -> str:
        """A part, in brackets where it binds less than this."""
        return f"({part.text})" if part.strength < strength else part.text

    def atom(self, kind: str, text: str) -> str:
        """A number or a name."""
        return text

    def sign(self, text: str) -> str:
        """An operator."""
        return text

    def row(self, *parts: str) -> str:
        """Parts side by side."""
        return "".join(parts)

    def power(self, base: str, exponent: Written) -> str:
        """`x²`, `x^(p - 1)`."""
        if exponent.text.isdigit():
            return base + exponent.text.translate(_RAISED)
        return f"{base}^{self.fenced(exponent, 9)}"

    def fraction(self, above: str, below: str) -> str:
        """Only where it is drawn as one."""
        raise NotImplementedError

    def transposed(self, matrix: str) -> str:
        """`xᵀ`."""
        return f"{matrix}ᵀ"

    def total(self, over: str, summed: str) -> str:
        """`Σ_dim x`."""
        return f"Σ{f'_{over}' if over else ''} {summed}"

    def sentence(self, words: str, parts: list[str]) -> Written:
        """`g in the shape of x`."""
        return Written(words.format(*parts), 0 if " " in words else 9)

    def listed(self, name: str, parts: list[str]) -> Written:
        """`max(x, y)`."""
        return Written(f"{name}({', '.join(parts)})")


class _MathML(_Plain):
    looser = "−@"

    def fenced(self, part: Written, strength: float) -> str:
        if part.strength < strength:
            return self.row(self.brackets(part.text))
        return part.text

    def brackets(self, content: str) -> str:
        """Brackets grow with a fraction, and with nothing else."""
        tag = "<mo>" if "<mfrac>" in content else '<mo stretchy="false">'
        return f"{tag}(</mo>{content}{tag})</mo>"

    def atom(self, kind: str, text: str) -> str:
        return f"<{kind}>{escape(text)}</{kind}>"

    def sign(self, text: str) -> str:
        return f"<mo>{escape(text.strip())}</mo>"

    def row(self, *parts: str) -> str:
        return f"<mrow>{''.join(parts)}</mrow>"

    def power(self, base: str, exponent: Written) -> str:
        return f"<msup>{base}{exponent.text}</msup>"

    def fraction(self, above: str, below: str) -> str:
        return f"<mfrac>{above}{below}</mfrac>"

    def transposed(self, matrix: str) -> str:
        return f"<msup>{matrix}<mi>T</mi></msup>"

    def total(self, over: str, summed: str) -> str:
        sign = "<mo>∑</mo>"
        return self.row(f"<munder>{sign}{over}</munder>" if over else sign, summed)

    def sentence(self, words: str, parts: list[str]) -> Written:
        texts = []
        for piece in re.split(r"{(\d)}", words):
            if piece.isdigit():
                texts.append(parts[int(piece)])
            elif piece:
                # MathML drops plain spaces at the ends of a text
                texts.append(self.atom("mtext", piece).replace(" ", "\u00a0"))
        return Written(self.row(*texts), 0)

    def listed(self, name: str, parts: list[str]) -> Written:
        if name == "sqrt":
            return Written(f"<msqrt>{parts[0]}</msqrt>")
        inside = self.sign(",").join(parts)
        return Written(self.row(self.atom("mi", name), self.brackets(inside)))
