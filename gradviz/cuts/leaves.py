"""Where the user's code reads leaves: as attributes, variables, in containers, and by
calling the module that has them. Runs nothing of the user's.
"""

from __future__ import annotations

import ast
from ast import AST, Call
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradviz.cuts.dataflow import CodeFile, FunctionCode
from gradviz.cuts.ran import RanCode
from gradviz.packages import is_foundation, package_of
from gradviz.source.bindings import dotted
from gradviz.variables.objects import attribute_of, is_a, members, submodules
from gradviz.variables.scanner import Namespace
from gradviz.walker.names import outermost_modules

MOST = 1_000
"""Elements of a container, and objects of a class, that are looked at."""
_LISTS = torch.nn.ParameterList, torch.nn.ParameterDict
_PARAMETERS = ("parameters", "named_parameters", "state_dict")
Leaves = dict[AST, list[torch.Tensor]]


class LeafReads:
    """Of one moment. `read` are the values that are a leaf, or what a module of torch
    computes with it, and `given` those of whole models.
    """

    def __init__(self, ran: RanCode, variables: Sequence[Namespace]) -> None:
        self._ran, self._variables = ran, variables
        self._objects: dict[str, list[Any]] = defaultdict(list)
        self.read: Leaves = {}
        self.given: Leaves = {}
        self._find_objects()
        for module, _, node in ran.modules:
            if node is not None and ran.forward_of(module) is None:
                _add(self.read, node, _parameters(module, whole=False))
        for code in list(ran.files.values()):
            for value in code.values:
                self._add_read(code, value)

    def _find_objects(self) -> None:
        """The objects of the user's classes, by the name of the class."""
        for _, model in outermost_modules(None, self._variables):
            for _, module in submodules(model):
                self._add_object(module)
        for space in self._variables:
            for value in list(space.values())[:MOST]:
                if not is_a(value, torch.nn.Module):
                    self._add_object(value)

    def _add_object(self, value: object) -> None:
        for kind in type(value).__mro__:
            file = class_file(kind)
            if file and not is_foundation(file) and not package_of(file):
                self._objects[kind.__name__].append(value)

    def _add_read(self, code: CodeFile, node: Any) -> None:
        """Note which leaves an expression such as `self.scale` is."""
        name = dotted(node)
        if not name or not isinstance(node.ctx, ast.Load):
            return
        parent: Any = code.parents.get(node)
        is_subject = getattr(parent, "value", None) is node
        key = parent.slice if isinstance(parent, ast.Subscript) and is_subject else None
        is_given = isinstance(parent, Call) and node in parent.args
        is_given |= getattr(parent, "attr", "") in _PARAMETERS
        for value in self.values(code, node, name):
            if isinstance(key, ast.Constant):
                value = _item(value, key.value)
            if is_a(value, torch.nn.Module) and getattr(parent, "func", None) is node:
                # another call than the last one, which the recording has
                if self._ran.ran(parent):
                    _add(self.read, parent, _own_to_torch(value))
            elif is_a(value, torch.nn.Module) and is_given:
                _add(self.given, node, _parameters(value, whole=True))
            elif not is_a(value, torch.nn.Module) or key is None:
                _add(self.read, node, _trained(value))

    def values(
        self,
        code: CodeFile,
        node: AST,
        name: str,
        inside: tuple[FunctionCode, ...] = (),
    ) -> Iterator[Any]:
        """What a name of a method's object, or of a variable, has now; of a parameter,
        what the calls of its function give it, but for calls `inside` of each other.
        """
        function = code.function_of(node)
        root, *rest = name.split(".")
        if function.owner is not None and function.first_parameter == root:
            holders: list[Any] = self._objects.get(function.owner.name, [])
        elif function.has(root) and not self._ran.runs(function):
            holders = [] if function in inside else self._passed(function, root, inside)
        else:
            holders = [space[root] for space in self._variables if root in space][:1]
        for holder in holders[:MOST]:
            yield attribute_of(holder, rest)

    def _passed(
        self, function: FunctionCode, root: str, inside: tuple[FunctionCode, ...]
    ) -> list[Any]:
        """What every call gives a function under a name that it gives no other value."""
        found: list[Any] = []
        if function.bindings.get(root):
            return found
        for one in function.parameters_called(root):
            assert isinstance(one.value, ast.arg)
            for call, given in self._ran.arguments(function, one.value):
                code, name = self._ran.code(call), dotted(given)
                found += self.values(code, given, name, (*inside, function))
        # a student and a teacher take turns there
        return found[:1] if len(set(map(id, found))) == 1 else []

    def value(self, node: AST) -> Any:
        """What a variable of the running code has; None of what is none."""
        name, code = dotted(node), self._ran.code(node)
        return next(self.values(code, node, name), None) if name else None

    def live(self, node: AST) -> torch.Tensor | None:
        """The same, of a tensor that has a graph."""
        value = self.value(node)
        return value if is_a(value, torch.Tensor) and value.requires_grad else None

    def of(self, tensor: torch.Tensor) -> set[AST]:
        """The values that are a leaf, or are computed by the module that has it."""
        found = set[AST]()
        for node, tensors in self.read.items():
            if any(each is tensor for each in tensors):
                found.add(node)
        return found


def _add(leaves: Leaves, node: AST, tensors: Sequence[torch.Tensor]) -> None:
    if tensors:
        leaves.setdefault(node, []).extend(tensors)


def class_file(kind: type) -> str:
    """The file of a function that a class defines itself; "" where there is none."""
    for value in list(vars(kind).values()):
        code = getattr(value, "__code__", None)
        if code is not None:
            return str(code.co_filename)
    return ""


def _parameters(module: torch.nn.Module, whole: bool) -> list[torch.Tensor]:
    """The parameters of a module that require grad; and of those inside it, if `whole`,
    or if it computes with them itself.
    """
    inside = [module]
    if whole or is_a(module, torch.nn.MultiheadAttention):
        inside = [inner for _, inner in submodules(module)]
    tensors = [tensor for each in inside for _, tensor in members(each, "_parameters")]
    return [tensor for tensor in tensors if tensor.requires_grad]


def _own_to_torch(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters of a module and of those inside it, of classes of torch's own."""
    found, waiting = list[torch.Tensor](), [module]
    while waiting:
        each = waiting.pop()
        if type(each).__module__.startswith("torch."):
            found += _parameters(each, whole=False)
            waiting += [child for _, child in members(each, "_modules")]
    return found


def _item(value: Any, key: Any) -> Any:
    if type(value) is dict:
        return value.get(key)
    if type(value) in (list, tuple) and type(key) is int:
        return next(iter(value[key:][:1]), None)
    return value


def _trained(value: Any) -> list[torch.Tensor]:
    """The leaves that require grad which a value is, or has in a container."""
    values: list[Any] = [value]
    if issubclass(type(value), _LISTS):
        values = [tensor for _, tensor in members(value, "_parameters")]
    elif type(value) is dict:
        values = list(value.values())[:MOST]
    elif type(value) in (list, tuple):
        values = list(value[:MOST])
    tensors = [each for each in values if is_a(each, torch.Tensor)]
    return [each for each in tensors if each.requires_grad and each.is_leaf]
