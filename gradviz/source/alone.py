"""Statements that compute something and give it to nobody: `x.clamp(0, 1)` or `optimizer.step` alone on a line.

Reads text only. Whether such a line ran, and on what, is for whoever asks to find out.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from gradviz.source.statements import tree_of

_MADE = (
    "abs clamp clip clamp_min clamp_max relu sigmoid tanh softmax log_softmax gelu silu elu leaky_relu softplus normalize dropout "
    "exp log sqrt square pow add sub mul div detach clone contiguous to cuda float double half bfloat16 long int bool type view "
    "reshape flatten permute transpose squeeze unsqueeze expand repeat masked_fill scatter scatter_add index_add index_fill "
    "index_copy"
)
"""Functions of torch that only make a tensor. Left out are those that somebody may call to wait for the device, or to measure."""
_OPERATORS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("add", "__radd__"),
    ast.Sub: ("sub", "__rsub__"),
    ast.Mult: ("mul", "__rmul__"),
    ast.Div: ("div", "__rdiv__"),
    ast.Pow: ("pow", "__rpow__"),
}
_ACTS = frozenset(("step", "zero_grad", "backward", "eval", "train", "half", "cuda", "detach_", "requires_grad_"))
"""Methods of which the name alone, without a call, can only be meant as a call."""
_LIBRARIES = frozenset(("torch", "F", "nn", "functional"))


class Alone(NamedTuple):
    """One such statement: its first line, the code, the name of what is lost, and the line as it should be ("" when unclear).

    `functions` are the names of torch for the operation; () for a method that is named and not called.
    """

    line: int
    text: str
    of: str
    mended: str
    functions: tuple[str, ...] = ()


def alone(file: str) -> dict[int, Alone]:
    """By every line that it goes over. The last statement of a file, which a notebook shows, and those inside `try` are left out.

    >>> import linecache
    >>> text = ["x.clamp(0, 1)\\n", "x.add_(1)\\n", "loss / 4\\n", "optimizer.step\\n", "x.exp()\\n"]
    >>> linecache.cache["a.py"] = 0, None, text, "a.py"
    >>> [one.mended for one in alone("a.py").values()]
    ['x = x.clamp(0, 1)', 'loss = loss / 4', 'optimizer.step()']
    """
    tree = tree_of(file)
    by_line: dict[int, Alone] = {}
    for statement in _statements(tree) if tree is not None and tree.body else ():
        statement_alone = _alone(statement) if tree is None or statement is not tree.body[-1] else None
        if statement_alone is not None:
            by_line.update(
                dict.fromkeys(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1), statement_alone)
            )
    return by_line


def _statements(tree: ast.AST) -> Iterator[ast.Expr]:
    waiting: deque[ast.AST] = deque([tree])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.Expr):
            yield node
        elif not isinstance(node, (ast.Try, ast.expr)):
            waiting += ast.iter_child_nodes(node)


def _alone(statement: ast.Expr) -> Alone | None:
    value, text = statement.value, ast.unparse(statement.value)
    if isinstance(value, ast.Attribute) and value.attr in _ACTS:
        return Alone(statement.lineno, text, ast.unparse(value.value), f"{text}()")
    if isinstance(value, ast.BinOp) and type(value.op) in _OPERATORS:
        given = value.right if isinstance(value.left, ast.Constant) else value.left
        return _assigned(statement.lineno, text, given, _OPERATORS[type(value.op)])
    if (
        not isinstance(value, ast.Call)
        or not isinstance(value.func, ast.Attribute)
        or value.func.attr not in _MADE.split()
    ):
        return None
    if any(keyword.arg in ("out", "inplace", None) for keyword in value.keywords):
        return None
    owner = value.func.value
    library = ast.unparse(owner).rpartition(".")[2] in _LIBRARIES
    first = value.args[0] if library and value.args else owner
    return _assigned(statement.lineno, text, first, (value.func.attr,))


def _assigned(line: int, text: str, given: ast.expr, functions: tuple[str, ...]) -> Alone:
    name = ast.unparse(given)
    takes = isinstance(given, (ast.Name, ast.Attribute, ast.Subscript))
    return Alone(line, text, name, f"{name} = {text}" if takes else "", functions)
