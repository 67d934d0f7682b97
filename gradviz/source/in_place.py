"""Which pieces of a statement change a tensor in place, as far as its text shows it. The one reader of this; runs nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from gradviz.source.statements import own_expressions

_METHOD = re.compile(r"_?[a-z](\w*[a-z0-9])?_")  # `add_`, as torch names what changes a tensor
_FUNCTIONS = ("torch", "functional", "F", "init")  # where the same are functions of their first argument


class InPlace(NamedTuple):
    """A piece of code that changes something in place: a whole statement, a target such as `h[0]`, or a call."""

    node: ast.AST
    changed: ast.expr

    @property
    def name(self) -> str:
        """What holds the tensor that is changed, as the code calls it: "self.h" of `self.h.data[0] += 1`."""
        return ast.unparse(without_index(self.changed))


def pieces_in_place(statement: ast.stmt) -> Iterator[InPlace]:
    """The pieces of a statement that change something in place, but not of the statements inside it.

    >>> [(one.name, ast.unparse(one.node)) for one in pieces_in_place(ast.parse("h[0] = g.add_(torch.relu_(f))").body[0])]
    [('h', 'h[0]'), ('g', 'g.add_(torch.relu_(f))'), ('f', 'torch.relu_(f)')]
    """
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Subscript):
            yield InPlace(target, target)
    if isinstance(statement, ast.AugAssign):
        yield InPlace(statement, statement.target)
    for call, called in method_calls(statement):
        if _METHOD.fullmatch(called.attr):
            function = ast.unparse(called.value).rpartition(".")[2] in _FUNCTIONS
            for changed in call.args[:1] if function else [called.value]:
                yield InPlace(call, changed)


def method_calls(statement: ast.stmt) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """The calls of methods, and of functions of modules, that a statement itself makes, each with what it calls."""
    for expression in own_expressions(statement):
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield node, node.func


def without_index(target: ast.expr) -> ast.expr:
    """What a part, or the bare numbers, of a tensor are taken of: `h` of `h[0]` and of `h.data`."""
    while isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr == "data"):
        target = target.value
    return target
