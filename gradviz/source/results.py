"""Where the value of an expression goes as it is: to a variable, or out of the function.

Reads syntax only.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import NamedTuple

from gradviz.source.bindings import dotted
from gradviz.source.spots import Spot
from gradviz.source.syntax import FunctionSyntax

_MAY_DO_NOTHING = (
    *("contiguous", "to", "type", "type_as", "cpu", "cuda"),
    *("float", "double", "half", "bfloat16"),
)
"""Methods that return the tensor itself where it is as they want it."""
_KEEP_ORDER = ("list", "tuple", "iter")


class Assignment(NamedTuple):
    """A variable that holds the value of an expression. `several`: it is a tuple of
    names, of one value. `passed` are calls that return the value as it is, or another.
    """

    name: str
    line: int
    several: bool = False
    passed: tuple[ast.AST, ...] = ()


class _Taker(NamedTuple):
    """What takes a value, and as which part of it."""

    node: ast.AST
    field: str
    place: int
    passed: tuple[ast.AST, ...]


def assignment_of(spot: Spot) -> Assignment | None:
    """The variable that holds what a spot computes, if one does. None where Python does
    not tell which part of a statement that is.
    """
    if spot.head_of is not None or not spot.is_exact:
        return None
    if isinstance(spot.node, ast.AugAssign):
        return _assignment(spot.node.target, ())
    if isinstance(spot.node, ast.Tuple) and isinstance(spot.node.ctx, ast.Store):
        return _assignment(spot.node, ())  # unpacks it
    for taker in _takers(spot):
        target = _target(taker, spot.function)
        if target is not None:
            return _assignment(target, taker.passed)
    return None


def is_returned(spot: Spot) -> bool:
    """Whether the function returns what a spot computes: at once, or as the last value
    of a variable.
    """
    for node, field, *_ in _takers(spot):
        is_lambda = isinstance(node, ast.Lambda) and field == "body"
        if is_lambda or isinstance(node, ast.Return):
            return True
    assignment = assignment_of(spot)
    if assignment is None:
        return False
    return spot.function.last_returned.get(assignment.name) == assignment.line


def is_computed(value: ast.AST) -> bool:
    """Whether an expression makes a value, and does not look up one that is there."""
    while not isinstance(value, ast.Name):
        called = getattr(value, "func", value)
        is_same = called is value or getattr(called, "attr", "") in _MAY_DO_NOTHING
        if not is_same or not isinstance(called, (ast.Attribute, ast.Subscript)):
            return True
        value = called.value
    return False


def rearranges(spot: Spot) -> bool:
    """Whether a function of Python's own is called there that may go over a tensor and
    give something else than its rows: `sorted`, `map`.
    """
    name = getattr(getattr(spot.node, "func", None), "id", "")
    return name not in _KEEP_ORDER and hasattr(builtins, name)


def _takers(spot: Spot) -> Iterator[_Taker]:
    """What takes the value, one after the other while each hands it on."""
    function, node = spot.function, spot.node
    passed: tuple[ast.AST, ...] = ()
    while node in function.parents:
        outer, field, place = function.parents[node]
        yield _Taker(outer, field, place, passed)
        is_chosen = isinstance(outer, ast.IfExp) and field != "test"
        if is_chosen or (isinstance(outer, ast.NamedExpr) and field == "value"):
            node = outer
        elif isinstance(outer, ast.Attribute) and outer.attr in _MAY_DO_NOTHING:
            node = function.parents[outer].node
            if not isinstance(node, ast.Call) or node.func is not outer:
                return
            passed = (*passed, node)
        else:
            return


def _target(taker: _Taker, function: FunctionSyntax) -> ast.expr | None:
    """What a taker assigns the value to."""
    node = taker.node
    if isinstance(node, ast.Tuple):
        target = getattr(function.parents[node].node, "targets", [None])[0]
        is_each = isinstance(target, ast.Tuple) and len(target.elts) == len(node.elts)
        return target.elts[taker.place] if is_each else None
    if taker.field != "value":
        return None
    if isinstance(node, ast.Assign):
        return node.targets[0] if len(node.targets) == 1 else None
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        return node.target
    return None


def _assignment(target: ast.expr, passed: tuple[ast.AST, ...]) -> Assignment | None:
    names = [target]
    if isinstance(target, ast.Tuple):
        names = target.elts
    if not all(isinstance(name, ast.Name) for name in names) and not dotted(target):
        return None
    text = ", ".join(map(dotted, names))
    return Assignment(text, target.lineno, len(names) > 1, passed)
