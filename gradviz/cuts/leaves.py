"""Where the user's code reads leaves: as attributes, variables, in containers, and by
calling the module that has them. Runs nothing of the user's.
"""

from __future__ import annotations

import ast
import gc
from ast import AST, Call
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import FunctionType, GeneratorType
from typing import Any

import torch

from gradviz.cuts.dataflow import CodeFile, FunctionCode
from gradviz.cuts.recorded import RecordedCode
from gradviz.packages import is_foundation, package_of
from gradviz.source.bindings import dotted
from gradviz.source.statements import last_name
from gradviz.variables.objects import (
    attribute_of,
    is_a,
    members,
    own_attributes,
    submodules,
)
from gradviz.variables.scanner import Namespace
from gradviz.walker.names import outermost_modules

MOST = 1_000
"""Elements of a container, and objects of a class, that are looked at."""
_LISTS = torch.nn.ParameterList, torch.nn.ParameterDict
_PARAMETERS = ("parameters", "named_parameters", "state_dict")
Leaves = dict[AST, list[torch.Tensor]]


class LeafReads:
    """Of one moment. `leaves` are the leaves that a value is, or that a module of torch
    computes it with, and `models` those of the whole models that a value is.
    """

    def __init__(self, recorded: RecordedCode, variables: Sequence[Namespace]) -> None:
        self._recorded, self._variables = recorded, variables
        self._instances: dict[str, list[Any]] = defaultdict(list)
        self.leaves: Leaves = {}
        self.models: Leaves = {}
        self._ran = {id(module) for module, *_ in recorded.modules}
        self._find_instances()

        for module, _, call in recorded.modules:
            if call is not None and recorded.forward_of(module) is None:
                _add(self.leaves, call, _parameters(module, whole=False))
        for file in list(recorded.files.values()):
            for value in file.values:
                self._add_read(file, value)

    def _find_instances(self) -> None:
        """The objects of the user's classes, by the name of the class."""
        for _, model in outermost_modules(None, self._variables):
            for _, module in submodules(model):
                self._add_instance(module)
        for space in self._variables:
            for value in list(space.values())[:MOST]:
                if not is_a(value, torch.nn.Module):
                    self._add_instance(value)

    def _add_instance(self, value: object) -> None:
        for kind in type(value).__mro__:
            file = class_file(kind)
            if file and not is_foundation(file) and not package_of(file):
                self._instances[kind.__name__].append(value)

    def _add_read(self, file: CodeFile, value: Any) -> None:
        """Note which leaves an expression such as `self.scale` is."""
        name = dotted(value)
        if not name or not isinstance(value.ctx, ast.Load):
            return

        parent: Any = file.parents.get(value)
        is_subject = getattr(parent, "value", None) is value
        key = parent.slice if isinstance(parent, ast.Subscript) and is_subject else None
        is_given = isinstance(parent, Call) and value in parent.args
        is_given |= getattr(parent, "attr", "") in _PARAMETERS

        for held in self.objects(file, value, name):
            if isinstance(key, ast.Constant):
                held = _item(held, key.value)
            is_module = is_a(held, torch.nn.Module)
            if is_module and getattr(parent, "func", None) is value:
                _add(self.leaves, parent, self._called(held, parent))
            elif is_module and is_given:
                _add(self.models, value, self._at_work(held))
            elif not is_module or key is None:
                _add(self.leaves, value, _trained(held))

    def _called(self, module: torch.nn.Module, call: Call) -> list[torch.Tensor]:
        """The parameters of a module of torch's own, in a call that the recording has."""
        ran = id(module) in self._ran and self._recorded.has_run(call)
        return _own_to_torch(module) if ran else []

    def _at_work(self, model: torch.nn.Module) -> list[torch.Tensor]:
        """The parameters of a model; of one that ran, those of its parts that did."""
        if id(model) not in self._ran:
            return _parameters(model, whole=True)
        parts = [part for _, part in submodules(model) if id(part) in self._ran]
        return [own for part in parts for own in _parameters(part, whole=False)]

    def objects(
        self,
        file: CodeFile,
        value: AST,
        name: str,
        inside: tuple[FunctionCode, ...] = (),
    ) -> Iterator[Any]:
        """What a name of a method's object, or of a variable, has now; of a parameter,
        what the calls of its function give it, but for calls `inside` of each other.
        """
        function = file.function_of(value)
        root, *rest = name.split(".")
        if function.owner is not None and function.first_parameter == root:
            holders: list[Any] = self._instances.get(function.owner.name, [])
        elif not function.binds(root) or self._recorded.is_running(function):
            holders = [space[root] for space in self._variables if root in space][:1]
        elif function in inside:
            holders = []
        else:
            holders = self._passed(function, root, inside)

        for holder in holders[:MOST]:
            yield attribute_of(holder, rest)

    def _passed(
        self, function: FunctionCode, root: str, inside: tuple[FunctionCode, ...]
    ) -> list[Any]:
        """What every call gives a function under a name that it gives no other value."""
        objects: list[Any] = []
        if len(function.inflows_of(root)) > 1:
            return objects
        for parameter in function.parameters_called(root):
            for call, argument in self._recorded.arguments(parameter):
                file, name = self._recorded.file_of(call), dotted(argument)
                objects += self.objects(file, argument, name, (*inside, function))
        # a student and a teacher take turns there
        return objects[:1] if len(set(map(id, objects))) == 1 else []

    def object_at(self, value: AST) -> Any:
        """What a variable of the running code has; None of what is none."""
        name, file = dotted(value), self._recorded.file_of(value)
        return next(self.objects(file, value, name), None) if name else None

    def used_up(self) -> Iterator[tuple[CodeFile, Any, str]]:
        """Where the code reads an iterator of parameters that has nothing more to give,
        with its name.
        """
        spaces: list[Any] = [*self._variables]
        for instances in self._instances.values():
            spaces += map(own_attributes, instances[:MOST])
        last = {
            name
            for space in spaces
            for name, value in list(space.items())[:MOST]
            if is_used_up(value)
        }
        for file in self._recorded.files.values() if last else ():
            for value in file.values:
                is_read = isinstance(getattr(value, "ctx", None), ast.Load)
                is_named = is_read and last_name(value) in last
                if is_named and is_used_up(self.object_at(value)):
                    yield file, value, dotted(value)

    def tensor_with_graph(self, value: AST) -> torch.Tensor | None:
        """The same, of a tensor that has a graph."""
        held = self.object_at(value)
        return held if is_a(held, torch.Tensor) and held.requires_grad else None

    def of(self, tensor: torch.Tensor) -> list[AST]:
        """The values that are a leaf, or are computed by the module that has it."""
        values = []
        for value, leaves in self.leaves.items():
            if any(leaf is tensor for leaf in leaves):
                values.append(value)
        return values


def is_used_up(value: object) -> bool:
    """Whether this is what `module.parameters()` returned, and all was taken from it."""
    if type(value) in (filter, map):
        return any(map(is_used_up, gc.get_referents(value)))
    if type(value) is not GeneratorType or value.gi_frame is not None:
        return False
    return value.gi_code.co_filename == torch.nn.modules.module.__file__


def _add(leaves: Leaves, value: AST, tensors: Sequence[torch.Tensor]) -> None:
    if tensors:
        leaves.setdefault(value, []).extend(tensors)


def class_file(kind: type) -> str:
    """The file of a function that a class defines itself; "" where there is none."""
    for value in list(vars(kind).values()):
        # another object may run code of the user's when it is asked
        if type(value) is FunctionType:
            return value.__code__.co_filename
    return ""


def _parameters(module: torch.nn.Module, whole: bool) -> list[torch.Tensor]:
    """The parameters of a module that require grad; and of those inside it, if `whole`,
    or if it computes with them itself.
    """
    modules = [module]
    if whole or is_a(module, torch.nn.MultiheadAttention):
        modules = [inner for _, inner in submodules(module)]

    return [
        parameter
        for inner in modules
        for _, parameter in members(inner, "_parameters")
        if parameter.requires_grad
    ]


def _own_to_torch(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters of a module and of those inside it, of classes of torch's own."""
    parameters, todo = list[torch.Tensor](), [module]
    while todo:
        inner = todo.pop()
        if type(inner).__module__.startswith("torch."):
            parameters += _parameters(inner, whole=False)
            todo += [child for _, child in members(inner, "_modules")]
    return parameters


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
    tensors = [tensor for tensor in values if is_a(tensor, torch.Tensor)]
    return [tensor for tensor in tensors if tensor.requires_grad and tensor.is_leaf]
