"""Which value goes into which, as the user's code says it: from the parts of an
expression to the whole, from what is assigned to where it is read, into functions and
out of them.

Only parses; runs nothing. What was computed, and with a graph, is for whoever asks to
find out.
"""

from __future__ import annotations

import ast
import sys
from ast import AST, Call, Module
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from gradviz.cuts.operations import WITH_INDICES, Effect, Inflow, effect
from gradviz.source.bindings import dotted
from gradviz.source.cut import DetachKind
from gradviz.source.feeding import ADDING
from gradviz.source.statements import called, part_holder, recording_off
from gradviz.source.syntax import FUNCTIONS, LOOPS, assignments

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
Path = tuple[tuple[AST, str], ...]
"""The blocks around a statement, the outermost first: what has them, and which of its
blocks it is.
"""


class _Binding(NamedTuple):
    """A statement that gives a name a value; with `adds` the name keeps the one that it
    had, too, as a list does.
    """

    order: int
    path: Path
    inputs: tuple[Inflow, ...]
    adds: bool = False


class NoGrad(NamedTuple):
    """The block, decorator or call that switches recording off."""

    kind: DetachKind
    switch: AST


class FunctionCode:
    """A function, or what stands outside of all functions, of a file. `owner` is the
    class that it is a method of.
    """

    def __init__(
        self, node: Any, outer: FunctionCode | None, owner: ast.ClassDef | None = None
    ) -> None:
        self.node, self.outer, self.owner = node, outer, owner
        self.name: str = getattr(node, "name", "<module>")
        self.bindings: dict[str, list[_Binding]] = {}
        self.returned: list[AST] = []
        self.parameters: list[ast.arg] = []
        self.first_line = 1
        if isinstance(node, ast.Lambda):
            self.name, self.returned = "<lambda>", [node.body]
            self.first_line = node.lineno
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            given = node.args
            named = given.posonlyargs + given.args + given.kwonlyargs
            more = (given.vararg, given.kwarg)
            self.parameters = [*named, *filter(None, more)]
        if isinstance(node, FUNCTIONS):
            self.first_line = min(p.lineno for p in (*node.decorator_list, node))

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
        found = list(map(Inflow, self.parameters_called(name)))
        for binding in self.bindings.get(name, ()):
            found += binding.inputs
        return found

    def parameter(self, call: Call, argument: AST, skips: int) -> ast.arg | None:
        """The one that an argument of a call is; `skips` are those in front, as self."""
        given = self.node.args
        found: ast.arg | None = None
        for keyword in call.keywords:
            if keyword.value is argument:
                named = [each for each in self.parameters if each.arg == keyword.arg]
                found = named[0] if named else given.kwarg
        positional = [*given.posonlyargs, *given.args][skips:]
        for i, each in enumerate(call.args):
            if each is argument:
                found = positional[i] if i < len(positional) else given.vararg
        return found

    def bind(self, node: Any, order: int, path: Path, put_in: _PutIn) -> None:
        """Note what a statement gives values to."""
        if isinstance(node, ast.Return) and node.value is not None:
            self.returned.append(node.value)
        given = list(_given(node))
        for part in _own_parts(node):
            if isinstance(part, ast.NamedExpr):
                given += _targets(part.target, part.value)
            elif isinstance(part, (ast.Yield, ast.YieldFrom)) and part.value:
                self.returned.append(part.value)
            elif isinstance(part, Call) and isinstance(part.func, ast.Attribute):
                changed, put = put_in(part, part.func.attr)
                given += [(base(changed), one, True) for one in put]
        for name, one, adds in given:
            binding = _Binding(order, path, (one,), adds)
            self.bindings.setdefault(name, []).append(binding)


_WRITING = ("at", "copyto", "put", "putmask")
"""Functions of NumPy that write into their first argument."""
_Position = tuple[int, Path, FunctionCode]
_PutIn = Callable[[Call, str], tuple[AST, Sequence[Inflow]]]
Given = tuple[str, Inflow, bool]
"""A name, what it is given, and whether it keeps what it had."""


class CodeFile:
    """What a file says. `values` are the expressions that are computed, and `a += b`."""

    def __init__(self, name: str, tree: Module) -> None:
        self.name = name
        self.parents: dict[AST, AST] = {}
        self.functions: list[FunctionCode] = []
        self.values: list[Any] = []
        # by the name that it is bound to: the module, and the name in it
        self.imports: dict[str, tuple[str, str]] = {}
        self._at: dict[AST, _Position] = {}  # of statements
        self._modules: set[str] = set()  # names of modules
        self._no_grad: dict[AST, NoGrad | None] = {}  # of statements
        self._named: dict[str, list[FunctionCode]] = {}
        for node in ast.walk(tree):
            self.parents |= dict.fromkeys(ast.iter_child_nodes(node), node)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._add_import(node)
            if isinstance(node, (ast.expr, ast.AugAssign)):
                self.values.append(node)
        self._read_functions(tree)
        for value in self.values:
            if isinstance(value, ast.Lambda):
                self._add_function(FunctionCode(value, self.function_of(value)))
        self.calls = [each for each in self.values if isinstance(each, Call)]
        self.parameters = [p for each in self.functions for p in each.parameters]

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

    def _add_function(self, function: FunctionCode) -> None:
        self.functions.append(function)
        self._named.setdefault(function.name, []).append(function)

    def _read_functions(self, tree: Module) -> None:
        waiting = [FunctionCode(tree, None)]
        while waiting:
            function = waiting.pop()
            self._add_function(function)
            for statement, path in _statements(function.node.body):
                order = len(self._at)
                self._at[statement] = order, path, function
                if isinstance(statement, FUNCTIONS):
                    waiting.append(FunctionCode(statement, function))
                elif isinstance(statement, ast.ClassDef):
                    methods = [n for n in statement.body if isinstance(n, FUNCTIONS)]
                    waiting += [FunctionCode(n, function, statement) for n in methods]
                else:
                    function.bind(statement, order, path, self._put_in)

    def adds(self, call: Call) -> bool:
        """Whether a call is of a method such as `append`; with `update` and `add` others
        compute something.
        """
        is_method = getattr(call.func, "attr", "") in ADDING
        return is_method and isinstance(self.parents.get(call), ast.Expr)

    def _put_in(self, call: Any, method: str) -> tuple[AST, list[Inflow]]:
        """What a call of a method puts into what it is a method of, or one of NumPy into
        its first argument.
        """
        changed: AST = call.func.value
        if method in _WRITING and self.is_module(changed) and call.args:
            return call.args[0], list(map(Inflow, call.args[1:]))
        if self.adds(call):
            return changed, list(map(Inflow, call.args))
        if method == "copy_" and call.args:
            kind: DetachKind | None = "written" if self.no_grad(call) else None
            return changed, [Inflow(call.args[0], kind)]
        in_place = method.endswith("_") and not method.endswith("__")
        return changed, [Inflow(call)] if in_place else []

    @property
    def written(self) -> Iterator[tuple[str, Inflow]]:
        """What is written into the data of something, or becomes a new Parameter of it, by
        the name of that.
        """
        for function in self.functions:
            for name, bindings in function.bindings.items():
                for one in [each for binding in bindings for each in binding.inputs]:
                    if one.kind == "written":
                        yield name, one
                    elif "." in name and called(one.value) == "Parameter":
                        yield from ((name, each) for each in self.inflows(one.value))

    # -- where a value stands ------------------------------------------------------

    def statement(self, node: AST) -> AST:
        """The one that a value stands in; the whole class in the body of one."""
        while node not in self._at:
            node = self.parents[node]
        return node

    def function_of(self, node: AST) -> FunctionCode:
        """The one that a value stands in."""
        return self._at[self.statement(node)][2]

    def function_with(self, parameter: ast.arg) -> FunctionCode:
        """The one that has a parameter."""
        return next(each for each in self.functions if parameter in each.parameters)

    def named(self, name: str) -> list[FunctionCode]:
        """The functions and methods of this name."""
        return self._named.get(name, [])

    def no_grad(self, node: AST) -> NoGrad | None:
        """What switches recording off around a value."""
        statement = self.statement(node)
        if statement not in self._no_grad:
            self._no_grad[statement] = self._find_no_grad(statement)
        return self._no_grad[statement]

    def _find_no_grad(self, statement: AST) -> NoGrad | None:
        for block, _ in reversed(self._at[statement][1]):
            for item in getattr(block, "items", ()):
                text = ast.unparse(item.context_expr)
                if kind := recording_off(text):
                    return NoGrad(cast("DetachKind", kind), item.context_expr)
                if "enable_grad" in text or "set_grad_enabled(True" in text:
                    return None
        if switches := self._switches_before(statement):
            is_off = recording_off(ast.unparse(switches[-1]))
            return NoGrad("no_grad", switches[-1]) if is_off else None
        function = self._at[statement][2].node
        for decorator in getattr(function, "decorator_list", ()):
            if kind := recording_off(ast.unparse(decorator)):
                return NoGrad(cast("DetachKind", kind), decorator)
        return None

    def _switches_before(self, statement: AST) -> list[Call]:
        """The statements `torch.set_grad_enabled(...)` that always run before another."""
        order, path, function = self._at[statement]
        found: dict[int, Call] = {}
        for call in self.calls:
            alone = isinstance(self.parents.get(call), ast.Expr)
            if alone and called(call) == "set_grad_enabled":
                at, around, inside = self._at[self.statement(call)]
                if inside is function and at < order and path[: len(around)] == around:
                    found[at] = call
        return [found[at] for at in sorted(found)]

    def is_module(self, node: AST) -> bool:
        """Whether an expression is a module that the file imports, as `torch.nn`."""
        return dotted(node).partition(".")[0] in self._modules

    def reads(self, name: str) -> bool:
        """Whether any code of the file reads a name."""
        loads = (each for each in self.values if dotted(each) == name)
        return any(isinstance(each.ctx, ast.Load) for each in loads)

    # -- what goes into a value ----------------------------------------------------

    def effect(self, node: AST) -> Effect:
        """What an expression does."""
        return effect(node, self)

    def inflows(self, node: Any) -> Sequence[Inflow]:
        """What goes into a value, without what functions return and are given."""
        if isinstance(node, ast.AugAssign):
            before = self._read(base(node.target), node)
            return [*before, Inflow(node.value)]
        name = dotted(node)
        found = self._read(name, node) if name else []
        if found or isinstance(node, ast.Name):
            return found
        return effect(node, self).inflows

    def _read(self, name: str, node: AST) -> list[Inflow]:
        """What a name may have where it is read."""
        inner = self._inside(name, node)
        if inner is not None:
            return [Inflow(inner)]
        order, path, function = self._at[self.statement(node)]
        if not function.binds(name):
            return self._from_outside(name, function)

        reaching = _reaching(function.bindings.get(name, ()), order, path)
        found = [one for binding in reaching for one in binding.inputs]
        earlier = [binding for binding in reaching if binding.order < order]
        if not any(_covers(binding, path) for binding in earlier):
            found += map(Inflow, function.parameters_called(name))
            # an attribute that other methods fill
            found += self._from_outside(name, function) if "." in name else []
        return found

    def _from_outside(self, name: str, function: FunctionCode) -> list[Inflow]:
        """What other functions, or the code around, give a name."""
        others: list[FunctionCode] = []
        if "." in name and function.owner is not None:
            methods = [each for each in self.functions if each.owner is function.owner]
            others = [each for each in methods if each is not function]
        outer = function.outer
        while "." not in name and outer is not None and not others:
            others = [outer] if outer.binds(name) else []
            outer = outer.outer
        return [one for other in others for one in other.inflows_of(name)]

    def _inside(self, name: str, node: AST) -> AST | None:
        """What a comprehension goes over to give a name its values, or the parameter of
        a lambda.
        """
        inner, around = node, self.parents.get(node)
        while around is not None and around not in self._at:
            for part in getattr(around, "generators", ()):
                names = [dotted(target) for target in ast.walk(part.target)]
                if name in names and part.iter is not inner:
                    found: AST = part.iter
                    return found
            if isinstance(around, ast.Lambda):
                for parameter in around.args.args:
                    if parameter.arg == name:
                        return parameter
            inner, around = around, self.parents.get(around)
        return None


def base(node: AST) -> str:
    """The name of what holds a part: `self.h` of `self.h.data[0]`."""
    return dotted(part_holder(node))


def _given(node: Any) -> Iterator[Given]:
    """The names that a statement gives a value, or a part of it, and whether they keep
    what they had.
    """
    if isinstance(node, ast.AugAssign):
        yield base(node.target), Inflow(node), not dotted(node.target)
        return
    for part in (node, *getattr(node, "items", ())):
        for target, value in assignments(part):
            yield from _targets(target, value)


def _targets(target: Any, value: Any) -> Iterator[Given]:
    if isinstance(target, (ast.Tuple, ast.List)):
        parts: Any = getattr(value, "elts", ())
        pairs = len(parts) == len(target.elts)
        for i, part in enumerate(target.elts):
            if pairs:
                yield from _targets(part, parts[i])
                continue
            # `values, indices = x.max(1)`
            is_index = i == 1 and len(target.elts) == 2 and gives_indices(value)
            for name, one, adds in _targets(part, value):
                lost = "integer" if is_index else one.kind
                yield name, one._replace(kind=lost, element=i), adds
        return
    is_data = isinstance(target, ast.Attribute) and target.attr == "data"
    kind: DetachKind | None = "written" if is_data else None
    yield base(target), Inflow(value, kind), is_data or not dotted(target)


def gives_indices(node: Any) -> bool:
    """Whether a call returns values and their indices."""
    name = getattr(getattr(node, "func", None), "attr", "")
    return isinstance(node, Call) and name in WITH_INDICES


def _statements(block: Sequence[Any]) -> Iterator[tuple[Any, Path]]:
    """All statements in the order of the text but for those inside functions."""
    waiting: list[tuple[Any, Path]] = [(node, ()) for node in reversed(block)]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node, around
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        inside: list[tuple[Any, Path]] = []
        for field in _BLOCKS:
            within = (*around, (node, field))
            inside += [(part, within) for part in getattr(node, field, ())]
        waiting += reversed(inside)


_PARTS = (ast.expr, ast.keyword, ast.withitem, ast.comprehension)


def _own_parts(statement: Any) -> Iterator[AST]:
    """The expressions of a statement, without those of statements inside it."""
    waiting: list[AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.Lambda):
            children = ast.iter_child_nodes(node)
            waiting += [child for child in children if isinstance(child, _PARTS)]


def _covers(one: _Binding, path: Path) -> bool:
    """Whether whoever comes to `path` has run a binding that stands before it."""
    return not one.adds and path[: len(one.path)] == one.path


def _reaching(bound: Sequence[_Binding], order: int, path: Path) -> list[_Binding]:
    """The bindings that may have given a name its value at a place."""
    found, covering = [], None
    for one in reversed(bound):
        if one.order < order and not _excludes(one.path, path):
            found.append(one)
            if _covers(one, path):
                covering = one
                break
    loops = [block for block in path if isinstance(block[0], LOOPS)]
    for one in bound:
        # the turn of the loop before
        shared = [loop for loop in loops if loop in one.path]
        is_new = covering is None or not shared or shared[-1] not in covering.path
        if one.order >= order and shared and is_new:
            found.append(one)
    return found


def _excludes(one: Path, other: Path) -> bool:
    """Whether two places are arms of one `if`."""
    for (node, field), (other_node, other_field) in zip(one, other):
        if node is not other_node:
            return False
        if field != other_field:
            return isinstance(node, ast.If)
    return False
