"""What of earlier steps is still reachable at a backward call: through the outputs, and through variables beside them.

Sequence numbers decide: a node made before the previous backward call has a lower number than the call. Leaves have none
and are no history.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from gradviz.checks.context import CheckContext, Copy, RetainedHistory
from gradviz.graph import Graph, column
from gradviz.graph.amounts import COMPUTED
from gradviz.packages import is_foundation, package_of
from gradviz.variables.objects import class_attribute, class_name, is_a, own_attributes, own_class
from gradviz.variables.scanner import Namespace, as_written, scan
from gradviz.walker.description import Walked
from gradviz.walker.names import Names
from gradviz.walker.private import Node, without_subclasses
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import capture

_WINDOW = 16  # elements of a deque that is a window over the last steps, and no leak
_INDEX = re.compile(r"(\[[^\]]*\])+$")


def carried_by_outputs(graph: Graph, since: int) -> Iterator[RetainedHistory]:
    """The part of a graph that is older than `since`, and the edges that lead into it."""
    history = _older(graph, since, "")
    if history is not None:
        yield history


def carried_by_variables(
    context: CheckContext,
    variables: Sequence[Namespace],
    since: int,
    attribution: Any,
) -> Iterator[RetainedHistory]:
    """The same for each variable, and attribute of an object, that holds a graph which is not part of the outputs' graph.

    A list counts as one.
    """
    beside = {
        tensor.names
        for tensor in context.named_tensors
        if tensor.node is None and not tensor.leaf and tensor.requires_grad
    }
    groups: dict[str, list[torch.Tensor]] = {}
    for tensor, names in Names(None, None, variables).named() if beside else ():
        if names in beside and _function(tensor) is not None:
            groups.setdefault(as_written(_INDEX.sub("", names[0]), variables), []).append(tensor)
    current = set(column(context.graph.nodes, "sequence"))
    for name, tensors in held_by([beyond(variables)]).items():
        old = [tensor for tensor in tensors if _sequence(tensor) not in current]
        if old:
            groups.setdefault(name, old)
    for name, tensors in groups.items():
        if is_window(name, variables):
            continue
        graph = capture(tensors, title=name, need_graph=False, attribution=attribution)
        history = _older(replace(graph, roots=()), since, name)
        if history is not None:
            newest = next((root.node for root in graph.roots if root.node is not None), None)
            made = graph.nodes[newest] if newest is not None else None
            number = max(sequence for sequence in column(graph.nodes, "sequence") if sequence is not None)
            yield history._replace(source=made.source if made is not None else None, newest=number)


def held_by(variables: Sequence[Namespace]) -> dict[str, list[torch.Tensor]]:
    """The tensors with a graph that each variable, or attribute of an object, holds. A list counts as one."""
    groups: dict[str, list[torch.Tensor]] = {}
    for variable in scan(variables):
        if variable.kind == "tensor" and variable.value.requires_grad and _function(variable.value) is not None:
            groups.setdefault(_INDEX.sub("", variable.name), []).append(variable.value)
    return groups


def is_window(name: str, variables: Sequence[Namespace]) -> bool:
    """Whether a name is that of a deque of a few elements, which lets go of the oldest."""
    first, *attributes = name.split(".")
    value: object = next((space[first] for space in variables if first in space), None)
    for attribute in attributes:
        value = own_attributes(value).get(attribute)
    return is_a(value, deque) and value.maxlen is not None and value.maxlen <= _WINDOW


class _Owner:
    """Stands for what variables do not lead to: its attributes are those of a class, a function or a module."""


def beyond(variables: Sequence[Namespace]) -> dict[str, object]:
    """What functions, classes and modules of the user's hold that the variables lead to, by the name of the variable.

    That is attributes of classes, global variables of modules, and what functions have as defaults and take from around them.
    """
    owners: dict[str, object] = {}
    seen = {id(value) for space in variables for value in space.values()}

    def hold(name: str, attributes: Mapping[str, object]) -> None:
        known = {key: value for key, value in attributes.items() if id(value) not in seen and not key.startswith("__")}
        if known and name.isidentifier():
            owner = owners.setdefault(name, _Owner())
            vars(owner).update(known)

    for space in variables:
        for name, value in list(space.items()):
            if type(value) is MethodType:
                value = value.__func__
            if type(value) is FunctionType and _is_users(value.__code__.co_filename):
                hold(name, _inside(value))
                hold(*_module_of(value.__module__, variables))
            elif type(value) is ModuleType:
                if _is_users(vars(value).get("__file__")):
                    hold(name, vars(value))
            else:
                kind = value if is_a(value, type) else type(value)
                module = class_attribute(kind, "__module__")
                if module == "__main__" or _is_users(_variables_of(module).get("__file__")):
                    own = {key: item for key, item in own_class(kind).items() if not is_a(item, property)}
                    hold(class_name(kind), own)
                    hold(*_module_of(module, variables))
    return owners


def _inside(function: FunctionType) -> dict[str, object]:
    """What a function carries along: from the function around it, as defaults, and as attributes."""
    inside = dict(vars(function))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with suppress(ValueError):  # not set yet
            inside[name] = cell.cell_contents
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    return inside | dict(zip(names[len(names) - len(defaults) :], defaults))


def _module_of(name: str, variables: Sequence[Namespace]) -> tuple[str, Mapping[str, object]]:
    """A module of the user's whose variables are not known yet."""
    known = name == "__main__" or any(space.get("__name__") == name for space in variables)
    inside = _variables_of(name)
    return ("", {}) if known or not _is_users(inside.get("__file__")) else (name.rpartition(".")[2], inside)


def _variables_of(name: object) -> dict[str, object]:
    """The global variables of a module; a lazy one is left alone."""
    module = sys.modules.get(name) if type(name) is str else None
    return vars(module) if type(module) is ModuleType else {}


def _is_users(file: object) -> bool:
    return type(file) is str and not is_foundation(file) and not package_of(file)


def _sequence(tensor: torch.Tensor) -> int | None:
    function = _function(tensor)
    return function._sequence_nr() if function is not None else None


def _function(tensor: torch.Tensor) -> Node | None:
    try:
        with without_subclasses():
            return grad_fn_of(tensor)
    except RuntimeError:
        return None


def _older(graph: Graph, since: int, name: str) -> RetainedHistory | None:
    old = {node.id for node in graph.nodes if node.sequence is not None and node.sequence < since}
    if not old:
        return None
    joints = tuple(
        (edge.consumer, edge.position) for edge in graph.edges if edge.producer in old and edge.consumer not in old
    )
    storages = {
        slot.storage
        for i in old
        for slot in graph.nodes[i].saved
        if slot.storage is not None and graph.storages[slot.storage].kind in COMPUTED
    }
    nbytes = sum(graph.storages[storage].nbytes or 0 for storage in storages)
    first = next((graph.nodes[consumer] for consumer, _ in joints), None)
    repeats = any(
        graph.nodes[edge.consumer].source == graph.nodes[edge.producer].source is not None
        for edge in graph.edges
        if edge.producer in old and edge.consumer not in old
    )
    source = first.source if first is not None else None
    return RetainedHistory(name, len(old), nbytes, source, joints, repeats=repeats)


# Finds values that are saved twice: a tensor, and a copy or cast of it that some other node saved. Only nodes that
# copy or cast are looked at, and only what their neighbours saved; no number is read.

_COPIES = ("CloneBackward0", "ToCopyBackward0", "CopyBackwards")


def copies(walked: Walked) -> Iterator[Copy]:
    """Every copying node whose input and output are both saved by nodes of the graph."""
    graph = walked.graph
    for node in graph.nodes:
        if node.op not in _COPIES:
            continue
        (edge,) = graph.inputs(node.id) or (None,)
        if edge is None:
            continue
        second = _saved_result(walked, node.id, edge=None)
        first = _saved_result(walked, edge.producer, edge=edge)
        if first is not None and second is not None and first[0] != second[0]:
            yield Copy(node.id, first[0], second[0], first[1], second[1])


def _saved_result(walked: Walked, maker: int, edge: Any) -> tuple[int, int] | None:
    """The storage in which what `maker` made is saved, and the node that saved it; for a leaf, the leaf's own storage."""
    graph = walked.graph
    leaf = graph.leaf_of.get(maker)
    if leaf is not None:
        return (leaf.storage, maker) if leaf.storage is not None else None
    output = edge.output if edge is not None else 0
    own = _matching(walked, maker, None, 0)
    if own is not None:
        return own, maker
    for use in graph.consumers(maker):
        storage = _matching(walked, use.consumer, maker, output)
        if storage is not None:
            return storage, use.consumer
    return None


def _matching(walked: Walked, saver: int, maker: int | None, output: int) -> int | None:
    """The storage of a slot of `saver` that holds output `output` of `maker`, or its own result when `maker` is None."""
    record, live = walked.graph.nodes[saver], walked.nodes[saver]
    for slot in record.saved:
        if slot.state != "live" or slot.storage is None or slot.leaf is not None:
            continue
        if maker is None:
            if slot.slot in ("result", "output", "out"):
                return slot.storage
            continue
        tensor = _tensor(live, slot.slot)
        if tensor is not None and tensor.grad_fn is walked.nodes[maker] and tensor.output_nr == output:
            return slot.storage
    return None


def _tensor(node: Any, slot: str) -> torch.Tensor | None:
    """What an unhooked single slot holds, or None. A view whose base changed is left alone: asking it makes a node."""
    raw = getattr(node, f"_raw_saved_{slot}", None)
    if raw is None or isinstance(raw, tuple) or raw.unpack_hook is not None:
        return None
    tensor = raw.data
    if not isinstance(tensor, torch.Tensor) or (tensor._is_view() and tensor._version > 0):
        return None
    return tensor
