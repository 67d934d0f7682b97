"""Which value goes into which, as the user's code says it within one file: from the
parts of an expression to the whole, from what is assigned to where it is read.

Only parses; runs nothing. What was computed, and with a graph, is for whoever asks to
find out.
"""

from __future__ import annotations

import ast
import sys
from ast import AST, Call
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

from gradviz.cuts.operations import WITH_INDICES, Effect, Inflow, effect
from gradviz.source.bindings import Binding, Bindings, dotted, is_data, part_holder
from gradviz.source.cut import DetachKind
from gradviz.source.feeding import ADDING
from gradviz.source.files import SourceText
from gradviz.source.statements import called, recording_off
from gradviz.source.syntax import FUNCTIONS

_WRITING = ("at", "copyto", "put", "putmask")
"""Functions of NumPy that write into their first argument."""


class NoGrad(NamedTuple):
    """The block, decorator or call that switches recording off."""

    kind: DetachKind
    switch: AST


class FunctionCode:
    """A function, or what stands outside of all functions, of a file. `owner` is the
    class that it is a method of.
    """

    def __init__(
        self,
        file: CodeFile,
        node: Any,
        outer: FunctionCode | None,
        owner: ast.ClassDef | None = None,
    ) -> None:
        self._file = file
        self.node, self.outer, self.owner = node, outer, owner
        self._inside: list[FunctionCode] = []
        if outer is not None:
            outer._inside.append(self)
        self.syntax = file.text.syntax_of(node)
        self.bindings = Bindings(self.syntax, file.changes)
        self.name: str = getattr(node, "name", "<module>")
        self.parameters: list[ast.arg] = []
        self.returned: list[AST] = []
        self.first_line = 1

        if isinstance(node, ast.Lambda):
            self.name, self.first_line = "<lambda>", node.lineno
            self.returned.append(node.body)
        if isinstance(node, FUNCTIONS):
            self.first_line = min(p.lineno for p in (*node.decorator_list, node))
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            parts = ast.iter_child_nodes(node.args)
            self.parameters = [part for part in parts if isinstance(part, ast.arg)]
        for part in self.syntax.order:
            if isinstance(part, (ast.Return, ast.Yield, ast.YieldFrom)) and part.value:
                self.returned.append(part.value)

    @property
    def title(self) -> str:
        """`Net.forward`."""
        return f"{self.owner.name}.{self.name}" if self.owner else self.name

    @property
    def first_parameter(self) -> str:
        """What its code calls self; "" where it has no parameters."""
        return self.parameters[0].arg if self.parameters else ""

    def binds(self, name: str) -> bool:
        """Whether a name is one of its variables."""
        return bool(self.inflows_of(name))

    def parameters_called(self, name: str) -> list[ast.arg]:
        """The parameter of a name."""
        return [part for part in self.parameters if part.arg == name]

    def inflows_of(self, name: str) -> list[Inflow]:
        """All that it gives a name."""
        return list(map(self._file.inflow, self.bindings.of(name)))

    def all_inflows_of(self, name: str) -> list[Inflow]:
        """All that it, or a function inside it, gives a name."""
        parts = (each.all_inflows_of(name) for each in self._inside)
        return [*self.inflows_of(name), *chain.from_iterable(parts)]

    def parameter(self, call: Call, argument: AST, skips: int) -> ast.arg | None:
        """The one that an argument of a call is; `skips` are those in front, as self."""
        signature = self.node.args
        found: ast.arg | None = None
        for keyword in call.keywords:
            if keyword.value is argument:
                named = self.parameters_called(keyword.arg or "")
                found = named[0] if named else signature.kwarg

        positional = [*signature.posonlyargs, *signature.args][skips:]
        for i, positioned in enumerate(call.args):
            if positioned is argument:
                found = positional[i] if i < len(positional) else signature.vararg
        return found


class CodeFile:
    """What a file says. `values` are the expressions that are computed, and `a += b`."""

    def __init__(self, name: str, text: SourceText) -> None:
        self.name, self.text = name, text
        self.parents: dict[AST, AST] = {}
        self.functions: list[FunctionCode] = []
        self.values: list[Any] = []
        # by the name that it is bound to: the module, and the name in it
        self.imports: dict[str, tuple[str, str]] = {}
        self._function_at: dict[AST, FunctionCode] = {}  # of statements
        self._modules: set[str] = set()  # names of modules
        self._no_grad: dict[AST, NoGrad | None] = {}  # of statements
        self._named: dict[str, list[FunctionCode]] = defaultdict(list)

        for node in ast.walk(text.tree):
            self.parents |= dict.fromkeys(ast.iter_child_nodes(node), node)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._add_import(node)
            if isinstance(node, (ast.expr, ast.AugAssign)):
                self.values.append(node)
        self.calls = [value for value in self.values if isinstance(value, Call)]
        self._read_functions()
        self.parameters: list[ast.arg] = []
        for function in self.functions:
            self.parameters += function.parameters

    def __contains__(self, node: AST) -> bool:
        return node in self.parents

    def _add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name in node.names:
            bound = name.asname or name.name.partition(".")[0]
            module = getattr(node, "module", None) or name.name
            is_from = isinstance(node, ast.ImportFrom)
            self.imports[bound] = module, name.name if is_from else ""
            # `from torch.nn import functional as F` binds a module, too
            if not is_from or f"{module}.{name.name}" in sys.modules:
                self._modules.add(bound)

    def _read_functions(self) -> None:
        todo = [FunctionCode(self, self.text.tree, None)]
        while todo:
            function = todo.pop()
            self._add_function(function)
            for node in function.syntax.order:
                if not isinstance(node, ast.stmt) or node is function.node:
                    continue
                self._function_at[node] = function
                if isinstance(node, FUNCTIONS):
                    todo.append(FunctionCode(self, node, function))
                elif isinstance(node, ast.ClassDef):
                    methods = [
                        part for part in node.body if isinstance(part, FUNCTIONS)
                    ]
                    todo += [
                        FunctionCode(self, part, function, node) for part in methods
                    ]

        for value in self.values:
            if isinstance(value, ast.Lambda):
                outer = self.function_of(value)
                self._add_function(FunctionCode(self, value, outer))

    def _add_function(self, function: FunctionCode) -> None:
        self.functions.append(function)
        self._named[function.name].append(function)

    # -- what gives a name its values ----------------------------------------------

    def adds(self, call: Call) -> bool:
        """Whether a call is of a method such as `append`; with `update` and `add` others
        compute something.
        """
        is_method = getattr(call.func, "attr", "") in ADDING
        return is_method and isinstance(self.parents.get(call), ast.Expr)

    def changes(self, node: AST) -> Iterator[tuple[str, Binding]]:
        """What a call of a method changes, or one of NumPy its first argument."""
        if not isinstance(node, Call) or not isinstance(node.func, ast.Attribute):
            return

        method, changed = node.func.attr, node.func.value
        put: Sequence[AST] = ()
        if method in _WRITING and self.is_module(changed) and node.args:
            changed, *put = node.args
        elif self.adds(node):
            put = node.args
        elif method == "copy_" and node.args:
            put = node.args[:1]
        elif method.endswith("_") and not method.endswith("__"):
            put = [node]

        name = dotted(part_holder(changed))
        yield from ((name, Binding(node, changes=True, origin=part)) for part in put)

    def inflow(self, binding: Binding) -> Inflow:
        """What a binding gives its name, and how that loses its graph there."""
        node, value = binding.node, binding.origin or binding.node
        kind: DetachKind | None = None
        is_written = is_data(node) and not isinstance(value, ast.AugAssign)
        method = getattr(getattr(value, "func", None), "attr", "")
        if is_written or (called(node) == "copy_" and self.no_grad(node)):
            kind = "written"
        elif binding.element == 1 and method in WITH_INDICES:
            kind = "integer"  # `values, indices = x.max(1)`
        return Inflow(value, kind, element=binding.element)

    @property
    def written(self) -> Iterator[tuple[str, Inflow]]:
        """What is written into the data of something, or becomes a new Parameter of it, by
        the name of that.
        """
        for function in self.functions:
            for name in function.bindings.names:
                for inflow in function.inflows_of(name):
                    if inflow.kind == "written":
                        yield name, inflow
                    elif "." in name and called(inflow.value) == "Parameter":
                        parts = self.inflows(inflow.value)
                        yield from ((name, part) for part in parts)

    # -- where a value stands ------------------------------------------------------

    def statement(self, node: AST) -> AST:
        """The one that a value stands in; the whole class in the body of one."""
        while node not in self._function_at:
            node = self.parents[node]
        return node

    def function_of(self, node: AST) -> FunctionCode:
        """The one that a value stands in."""
        return self._function_at[self.statement(node)]

    def function_with(self, parameter: ast.arg) -> FunctionCode:
        """The one that has a parameter."""
        functions = self.functions
        return next(owner for owner in functions if parameter in owner.parameters)

    def named(self, name: str) -> list[FunctionCode]:
        """The functions and methods of this name."""
        return self._named[name]

    def no_grad(self, value: AST) -> NoGrad | None:
        """What switches recording off around a value."""
        statement = self.statement(value)
        if statement not in self._no_grad:
            self._no_grad[statement] = self._find_no_grad(statement)
        return self._no_grad[statement]

    def _find_no_grad(self, statement: AST) -> NoGrad | None:
        function = self._function_at[statement]
        for block, *_ in function.syntax.outward(statement):
            for item in getattr(block, "items", ()):
                text = ast.unparse(item.context_expr)
                if kind := recording_off(text):
                    return NoGrad(cast("DetachKind", kind), item.context_expr)
                if "enable_grad" in text or "set_grad_enabled(True" in text:
                    return None

        if switches := self._switches_before(statement):
            is_off = recording_off(ast.unparse(switches[-1]))
            return NoGrad("no_grad", switches[-1]) if is_off else None
        for decorator in getattr(function.node, "decorator_list", ()):
            if kind := recording_off(ast.unparse(decorator)):
                return NoGrad(cast("DetachKind", kind), decorator)
        return None

    def _switches_before(self, statement: AST) -> list[Call]:
        """The statements `torch.set_grad_enabled(...)` that always run before another."""
        syntax = self._function_at[statement].syntax
        switches: list[Call] = []
        for part in syntax.order:
            call = part.value if isinstance(part, ast.Expr) else None
            if isinstance(call, Call) and called(call) == "set_grad_enabled":
                switches += [call] if syntax.always_before(part, statement) else []
        return switches

    def is_module(self, node: AST) -> bool:
        """Whether an expression is a module that the file imports, as `torch.nn`."""
        return dotted(node).partition(".")[0] in self._modules

    def reads(self, name: str) -> bool:
        """Whether any code of the file reads a name."""
        loads = (value for value in self.values if dotted(value) == name)
        return any(isinstance(value.ctx, ast.Load) for value in loads)

    # -- what goes into a value ----------------------------------------------------

    def effect(self, value: AST) -> Effect:
        """What an expression does."""
        return effect(value, self)

    def inflows(self, value: Any) -> Sequence[Inflow]:
        """What goes into a value, without what functions return and are given."""
        if isinstance(value, ast.AugAssign):
            before = self._read(dotted(part_holder(value.target)), value.target)
            return [*before, Inflow(value.value)]
        if isinstance(getattr(value, "ctx", None), ast.Store):
            return []  # nothing is read there

        name = dotted(value) if not is_data(value) else ""
        inflows = self._read(name, value) if name else []
        if inflows or isinstance(value, ast.Name):
            return inflows
        return effect(value, self).inflows

    def _read(self, name: str, use: AST) -> list[Inflow]:
        """What a name may have where it is read."""
        function = self.function_of(use)
        if use not in function.syntax.order:
            use = self.statement(use)  # in a class, or in front of a function
        reaching = function.bindings.reaching(name, use)
        inflows = list(map(self.inflow, filter(None, reaching)))
        # or an attribute that other methods fill
        if None in reaching and ("." in name or not function.binds(name)):
            inflows += self._from_outside(name, function)
        return inflows

    def _from_outside(self, name: str, function: FunctionCode) -> list[Inflow]:
        """What other functions, or the code around, give a name."""
        others: list[FunctionCode] = []
        if "." in name and function.owner is not None:
            for other in self.functions:
                if other.owner is function.owner and other is not function:
                    others.append(other)
            return [part for other in others for part in other.all_inflows_of(name)]

        outer = function.outer
        while "." not in name and outer is not None and not others:
            others = [outer] if outer.binds(name) else []
            outer = outer.outer
        return [inflow for other in others for inflow in other.inflows_of(name)]
