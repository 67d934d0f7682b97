"""What the code of a module's `forward` says of the order of its operations and of the
modules that it calls. Reads code, runs nothing.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from gradviz.inference.steps import ForwardStep
from gradviz.source.bindings import dotted
from gradviz.source.files import file_of
from gradviz.source.syntax import COMPREHENSIONS, FUNCTIONS, LOOPS, assignments
from gradviz.variables.objects import class_attribute

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
    ast.MatMult: "matmul", ast.USub: "neg",
}  # fmt: skip
_BUILTINS = vars(builtins)
_PLAIN = (list, dict, str, set, tuple, int)
_HELD = ("values", "items", "children", "named_children", "modules", "named_modules")
_DEEPEST = 5
_LONGEST = 2000


def steps_of(kind: type, forward: Any) -> tuple[ForwardStep, ...] | None:
    """What the forward of a class does, in order; two turns of what repeats. None where
    its code is not to be read.
    """
    function = _function(forward)
    if function is None:
        return None
    names = function.__code__.co_varnames[:1]
    reader = _Forward(kind, function, dict.fromkeys(names, ""), 0, {})
    try:
        return reader.steps()
    except RecursionError:  # a sum of hundreds of terms
        return None


def _function(value: Any) -> FunctionType | None:
    """The function that is behind decorators, if there is one. Runs nothing of theirs."""
    for _ in range(_DEEPEST):
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, FunctionType):
            value = vars(value).get("__wrapped__", value)
    return value if isinstance(value, FunctionType) else None


@lru_cache(maxsize=10_000)
def _syntax(code: CodeType) -> Any:
    """The function that a code object was compiled from."""
    function = file_of(code.co_filename).function_of(code)
    return None if function is None else function.root


_Inlined = dict[tuple[object, ...], tuple[ForwardStep, ...] | None]
"""What functions do that were read before, by what they are given and how deep."""


class _Forward:
    """Reads one function, and inside it those that it calls."""

    def __init__(
        self,
        kind: type,
        function: FunctionType,
        paths: dict[str, str],
        depth: int,
        inlined: _Inlined,
    ) -> None:
        self._kind, self._function, self._depth = kind, function, depth
        self._inlined = inlined
        self._paths = paths  # by variable what the module holds that it stands for
        self._found: list[ForwardStep] = []

    def steps(self) -> tuple[ForwardStep, ...] | None:
        root = _syntax(self._function.__code__)
        if root is None:
            return None
        self._read(root.body)
        # what was cut short has a beginning without its end
        return tuple(self._found) if len(self._found) < _LONGEST else None

    def _add(self, child: str = "", name: str = "") -> None:
        if len(self._found) < _LONGEST:
            self._found.append(ForwardStep(child, name))

    def _read(self, nodes: Iterable[ast.AST | None]) -> None:
        """Read code in the order in which it runs."""
        for node in nodes:
            if isinstance(node, (*LOOPS, *COMPREHENSIONS)):
                self._loop(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                self._read([node.value])
                for target, value in assignments(node):
                    self._bind(target, value)
            elif isinstance(node, FUNCTIONS):
                self._read(node.body)
            elif isinstance(node, ast.If):
                self._read([node.test])
                self._add(name="if")
                self._read([*node.body, *node.orelse])
                self._add(name="end")
            elif node is not None:
                self._read(ast.iter_child_nodes(node))
                self._operate(node)

    def _operate(self, node: ast.AST) -> None:
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.AugAssign)):
            name = _OPERATORS.get(type(node.op), "")
            if name:
                self._mention(ast.iter_child_nodes(node))
                self._add(name=name)
        elif isinstance(node, ast.Subscript):
            if self._path(node.value) is None:
                self._add(name="getitem")
        elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "H"):
            self._add(name="t")
        elif isinstance(node, ast.Return):
            self._add(name="return")

    def _mention(self, values: Iterable[Any]) -> None:
        """Note what an operation is given of what the module holds."""
        for value in values:
            held = self._path(value)
            method = self._method(held) if held else None
            if method is not None:
                self._inline(ast.Call(value, [], []), method, 1)
            elif held:
                self._add(held)

    def _loop(self, node: Any) -> None:
        generators = getattr(
            node, "generators", [node] if hasattr(node, "iter") else []
        )
        for one in generators:
            self._read([one.iter])
            self._go_through(one.target, one.iter)
        start = len(self._found)
        if hasattr(node, "body"):
            self._read([getattr(node, "test", None), *node.body])
        else:
            self._read(part for one in generators for part in one.ifs)
            self._read(getattr(node, name, None) for name in ("key", "value", "elt"))
        turn = self._found[start:]
        if len(self._found) + len(turn) < _LONGEST:
            self._found += turn
        self._read(getattr(node, "orelse", ()))

    # -- what names stand for ------------------------------------------------------

    def _path(self, node: ast.AST) -> str | None:
        """What the module holds that an expression stands for; "" is the module."""
        if isinstance(node, ast.Name):
            return self._paths.get(node.id)
        if isinstance(node, ast.NamedExpr):
            return self._path(node.value)
        if isinstance(node, ast.Attribute):
            return self._joined(node.value, node.attr)
        if isinstance(node, ast.Subscript):
            is_part = isinstance(node.slice, ast.Slice)
            return self._joined(node.value, "" if is_part else "*")
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Attribute) and node.func.attr in _HELD:
            return self._path(node.func.value)
        is_held = dotted(node.func) == "getattr" and node.args
        return self._joined(node.args[0], "*") if is_held else None

    def _joined(self, outer: ast.AST, inner: str) -> str | None:
        path = self._path(outer)
        return None if path is None else f"{path}.{inner}".strip(".")

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        """Give the variables of an assignment their paths."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, other in zip(target.elts, value.elts):
                self._bind(one, other)
        else:
            is_name = isinstance(target, ast.Name)
            self._give(target, self._path(value) if is_name else None)

    def _go_through(self, target: ast.expr, iterable: ast.expr) -> None:
        """Give the variables of a loop their paths."""
        while isinstance(iterable, ast.Call) and self._path(iterable) is None:
            if dotted(iterable.func) == "zip" and isinstance(target, ast.Tuple):
                for one, other in zip(target.elts, iterable.args):
                    self._go_through(one, other)
                return
            if not isinstance(iterable.func, ast.Name) or not iterable.args:
                break
            iterable = iterable.args[0]  # of `enumerate` or `reversed`
        self._give(target, self._joined(iterable, "*"))

    def _give(self, target: ast.expr, path: str | None) -> None:
        for one in ast.walk(target):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                self._paths.pop(one.id, None)
                if path is not None:
                    self._paths[one.id] = path

    # -- calls ---------------------------------------------------------------------

    def _call(self, node: ast.Call) -> None:
        path, name = self._path(node.func), dotted(node.func)
        if path is None and isinstance(node.func, ast.Attribute):
            self._read([node.func.value])
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        self._read(values)
        if name not in _BUILTINS:
            self._mention(values)  # whoever gets it may call it
        if path is not None:
            self._call_held(node, path)
        elif self._path(node) is None:
            self._call_other(node, name)

    def _method(self, name: str) -> FunctionType | None:
        """The method that the class has under a name."""
        return _function(class_attribute(self._kind, name))

    def _call_held(self, node: ast.Call, path: str) -> None:
        method = self._method(path)
        if method is not None:
            self._inline(node, method, 1)
        elif path:
            name = path.rpartition(".")[2]
            self._add(path, _method(name) if name != path else "?")

    def _call_other(self, node: ast.Call, name: str) -> None:
        known = self._known(name)
        last = name.rpartition(".")[2]
        if known is not None:
            self._call_known(node, known, last)
        elif not isinstance(node.func, ast.Attribute):
            if name not in _BUILTINS:
                self._add(name="?")
        elif _is_super(node.func.value):
            self._call_super(node, node.func.attr)
        else:
            last = node.func.attr
            is_plain = any(hasattr(kind, last) for kind in _PLAIN)
            if hasattr(torch.Tensor, last) or not is_plain:
                self._add(name=_method(last))

    def _known(self, name: str) -> Any:
        """What a name of the file stands for."""
        first, *rest = name.split(".")
        value = self._function.__globals__.get(first)
        for part in rest:
            # a module may import what is asked of it
            if isinstance(value, ModuleType):
                value = vars(value).get(part)
            else:
                value = (
                    class_attribute(value, part) if isinstance(value, type) else None
                )
        return value

    def _call_known(self, node: ast.Call, known: Any, name: str) -> None:
        function = _function(known)
        is_plain = isinstance(known, (FunctionType, BuiltinFunctionType))
        if is_plain and str(known.__module__).partition(".")[0] == "torch":
            function = None
        if getattr(torch.nn.functional, name, None) is known:
            self._add(name=f"F.{name}")
        elif function is None and not isinstance(known, type):
            self._add(name=name if name not in ("checkpoint", "apply") else "?")
        elif function is not None:
            own = self._function.__code__.co_filename
            if function.__code__.co_filename == own:
                self._inline(node, function, 0)
            else:
                self._add(name="?")

    def _call_super(self, node: ast.Call, name: str) -> None:
        above = [_function(vars(one).get(name)) for one in self._kind.__mro__]
        code, defined = self._function.__code__, [one for one in above if one]
        own = [one.__code__ for one in defined]
        later = defined[own.index(code) + 1 :] if code in own else []
        if later:
            self._inline(node, later[0], 1)

    def _inline(self, node: ast.Call, function: FunctionType, skip: int) -> None:
        """Read a function that is called here, with what it is given."""
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if isinstance(class_attribute(self._kind, function.__name__), staticmethod):
            skip = 0
        paths = dict.fromkeys(names[:skip], "")
        pairs = [*zip(names[skip:], node.args)]
        pairs += [(one.arg, one.value) for one in node.keywords if one.arg]
        for name, value in pairs:
            path = self._path(value)
            if path is not None:
                paths[name] = path
        depth = self._depth + 1
        key = function, depth, *paths.items()
        if key not in self._inlined:
            reader = _Forward(self._kind, function, dict(paths), depth, self._inlined)
            self._inlined[key] = reader.steps() if depth <= _DEEPEST else None
        steps = self._inlined[key]
        for step in (ForwardStep(name="?"),) if steps is None else steps:
            if step.name != "return":
                self._add(*step)


def _method(name: str) -> str:
    return name if hasattr(torch.Tensor, name) else "?"


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) == "super"
