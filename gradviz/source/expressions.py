"""What an expression says by itself: whether it is a number, which variables it has, and
what a call gives for a parameter.

Reads syntax only.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from gradviz.source.bindings import dotted
from gradviz.source.spots import Spot
from gradviz.source.syntax import is_literal


def argument(spot: Spot, code: Any, name: str, skip: int) -> ast.expr | None:
    """What a call gave for a parameter of a function of which it leaves out `skip`."""
    node = spot.node
    count = code.co_argcount + code.co_kwonlyargcount
    parameters = code.co_varnames[:count]
    if not isinstance(node, ast.Call):
        return None
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    is_complete = not any(isinstance(part, ast.Starred) for part in node.args)
    if name not in parameters or not is_complete:
        return None
    values: Sequence[ast.expr] = node.args
    if spot.called == "functional_call":  # of a module, with parameters
        values = [
            part for given in node.args[2:3] for part in getattr(given, "elts", [given])
        ]
    place = parameters.index(name)
    if place < code.co_argcount and 0 <= place - skip < len(values):
        value: ast.expr = values[place - skip]
        return value
    return None


def function_name(spot: Spot) -> str:
    """The name of what is called, such as `self.head`; "" for what has none."""
    function = getattr(spot.node, "func", None)
    return dotted(function) if function is not None else ""


def is_import_called(spot: Spot) -> bool:
    """Whether a function that calls what it is given is called: `checkpoint`."""
    if spot.called == "functional_call":
        return False
    return function_name(spot).partition(".")[0] in spot.file.imported


def is_comparison(value: ast.expr) -> bool:
    """Whether an expression compares, but for methods of that without arguments that
    may have a gradient.
    """
    while isinstance(value, (ast.Call, ast.UnaryOp)):
        if isinstance(value, ast.UnaryOp):
            value = value.operand
            continue
        given = [*value.args, *(keyword.value for keyword in value.keywords)]
        if not isinstance(value.func, ast.Attribute):
            return False
        if not all(isinstance(one, ast.Constant) or is_literal(one) for one in given):
            return False
        value = value.func.value
    return isinstance(value, ast.Compare)


def is_number_parameter(function: ast.AST, name: str) -> bool:
    """Whether a parameter has a number as its default, or is annotated as one."""
    arguments = getattr(function, "args", None)
    if arguments is None:
        return False
    every = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(every), reversed(arguments.defaults))]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults)
    for argument in (*every, *arguments.kwonlyargs):
        annotation = getattr(argument.annotation, "id", "")
        if argument.arg == name and annotation in ("int", "float", "bool"):
            return True
    return any(
        argument.arg == name
        and isinstance(default, ast.Constant)
        and type(default.value) in (int, float)
        for argument, default in pairs
    )


def is_number_attribute(spot: Spot, name: str) -> bool:
    """Whether a class gives an attribute of its objects numbers alone."""
    values = spot.file.attributes(spot.function.root).get(name, [])
    numbers = [
        isinstance(value, ast.Constant)
        or (isinstance(value, ast.Name) and is_number_parameter(method, value.id))
        for method, value in values
    ]
    return bool(numbers) and all(numbers)


def given_attribute(spot: Spot, expression: ast.expr) -> list[ast.expr]:
    """What a class gives an attribute of its objects; None says nothing of it."""
    holder, _, name = dotted(expression).rpartition(".")
    given = spot.file.attributes(spot.function.root).get(name, ())
    values = [value for _, value in given if getattr(value, "value", "") is not None]
    return values if holder == "self" else []


def is_given_anew(spot: Spot, name: str) -> bool:
    """Whether a class gives an attribute of its objects another value later."""
    given = spot.file.attributes(spot.function.root).get(name, ())
    return any(getattr(method, "name", "") != "__init__" for method, _ in given)


_NUMBERS = ("len", "int", "float", "bool", "range", "round", "ord")
_NUMBER_METHODS = ("item", "size", "numel", "dim", "nelement", "tolist")
_NUMBER_ATTRIBUTES = ("shape", "ndim", "dtype", "device", "training", "requires_grad")


def number_parts(expression: ast.expr) -> Sequence[ast.expr] | None:
    """The parts that all have to be numbers for an expression to be one, none where it
    is one for certain; None where its kind says nothing.
    """
    if isinstance(expression, (ast.Constant, ast.JoinedStr)):
        return ()
    if isinstance(expression, ast.BinOp):
        return (expression.left, expression.right)
    if isinstance(expression, ast.Compare):
        is_tensors = not isinstance(expression.ops[0], (ast.Is, ast.IsNot, ast.In))
        return (expression.left, *expression.comparators) if is_tensors else ()
    if isinstance(expression, ast.UnaryOp):
        return (expression.operand,)
    if isinstance(expression, ast.IfExp):
        return (expression.body, expression.orelse)
    if isinstance(expression, ast.Subscript):
        is_size = isinstance(expression.value, ast.Attribute)
        if is_size and expression.value.attr == "shape":  # type: ignore[attr-defined]
            return ()
    attribute = expression.attr if isinstance(expression, ast.Attribute) else ""
    if attribute in _NUMBER_ATTRIBUTES:
        return ()
    if isinstance(expression, ast.Call):
        return _number_call(expression)
    return None


def _gives_number(call: ast.Call) -> bool:
    """Whether a tensor's method is called that gives a number: not `self.item(ids)`, which
    calls a module, for of these only size() takes something.
    """
    called, function = getattr(call.func, "attr", ""), call.func
    holder = function.value if isinstance(function, ast.Attribute) else function
    takes = bool(call.args) and called != "size"
    return called in _NUMBER_METHODS and dotted(holder) != "self" and not takes


def _number_call(call: ast.Call) -> Sequence[ast.expr] | None:
    function = call.func
    if isinstance(function, ast.Name):
        if function.id in _NUMBERS:
            return ()
        if function.id in ("min", "max", "abs", "sum", "pow") and call.args:
            return call.args
    if isinstance(function, ast.Attribute):
        base = dotted(function.value)
        if base in ("math", "random") or _gives_number(call):
            return ()
        if base in ("np", "numpy"):
            return call.args
    return None


def names_variable(value: ast.expr) -> bool:
    """Whether an expression names one variable, and computes little."""
    while isinstance(value, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(value, ast.Call):
            is_method = isinstance(value.func, ast.Attribute)
            if not is_method or value.args or value.keywords:
                return False
            value = value.func
        assert isinstance(value, (ast.Attribute, ast.Subscript))
        value = value.value
    return isinstance(value, ast.Name)


def names(expression: ast.expr) -> Iterator[str]:
    """The names in an expression, with their attributes."""
    waiting: list[ast.AST] = [expression]
    while waiting:
        node = waiting.pop()
        if dotted(node):
            yield dotted(node)
        else:
            waiting += ast.iter_child_nodes(node)


def variables(expression: ast.expr) -> Iterator[ast.expr]:
    """The variables in an expression that may hold data that it is computed from, as
    they are read.
    """
    waiting: list[ast.AST] = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Name, ast.Attribute)) and dotted(node):
            # `float` in `x.to(float)`; variables may well be called `input`
            if not isinstance(getattr(builtins, dotted(node), None), type):
                yield node
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", "")
            if called.endswith("_like") or called.startswith("new_"):
                continue  # which takes the shape alone
            if dotted(node.func) in _NUMBERS or _gives_number(node):
                continue
            waiting += reversed(node.args)
            if isinstance(node.func, ast.Attribute):
                waiting.append(node.func.value)
        elif not isinstance(node, ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(node)))
