"""What nodes tell of themselves besides tensors: type, attributes such as `dim`, and how DTensors lie on a mesh of processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import unwrap
from math import prod
from types import FunctionType, MethodType
from typing import Any

import torch

from gradviz.graph import NO_ATTRIBUTES, Function, NodeFlag
from gradviz.graph.columns import NodeType
from gradviz.packages import code_line
from gradviz.variables.objects import own_attributes
from gradviz.walker import private
from gradviz.walker.private import Node
from gradviz.walker.slots import SAVED, FetchAll, cells

# -- the type of a node ------------------------------------------------------------------------------------------------

_MOST = 20  # functions and cells that are looked at


def modules_behind(node: Any) -> list[torch.nn.Module]:
    """The modules that the function of a checkpoint's node is, is bound to, wraps, closes over or names, in that order.

    Which module a reentrant checkpoint ran: its ops are hidden behind one node, whose function knows it. Reads the function
    that torch keeps, past its class, and calls nothing.

    >>> from torch.utils.checkpoint import checkpoint
    >>> x, block = torch.ones(1, requires_grad=True), torch.nn.Linear(1, 1)
    >>> y = checkpoint(lambda h: block(h), x, use_reentrant=True)
    >>> modules_behind(y.grad_fn) == [block]
    True
    """
    modules: list[torch.nn.Module] = []
    waiting: list[Any] = [own_attributes(node).get("run_function")]
    for value in waiting:
        kind = type(value)
        if len(waiting) > _MOST:
            break
        if issubclass(kind, torch.nn.Module):
            modules.append(value)
        elif kind is MethodType:
            waiting.append(value.__self__)
        elif kind is partial:
            waiting.append(value.func)
        elif kind is FunctionType:
            waiting += cells(value)
            waiting += value.__defaults__ or ()
            named = [value.__globals__.get(name) for name in value.__code__.co_names]
            waiting += [value for value in named if issubclass(type(value), torch.nn.Module)]
    return modules


_HIDES: dict[str, NodeFlag] = {"CheckpointFunctionBackward": "checkpoint", "CompiledFunctionBackward": "compiled"}
_OPAQUE = ("CopySlices", "CppFunction")
_Function = torch.autograd.Function


class TypeTable(dict[type, NodeType]):
    """What nodes share by their type, worked out when a type is first asked for."""

    def __missing__(self, type: type) -> NodeType:
        known = self[type] = _node_type(type)
        return known


def _node_type(type: type) -> NodeType:
    """Name, flags and class of a type of node. The op is "" where the type does not say it and each node must be asked."""
    op = type.__name__
    flags: list[NodeFlag] = []
    function = None
    if issubclass(type, private.BackwardCFunction):
        flags.append("custom")
        function = _function(type)
    if op in _HIDES:
        flags.append(_HIDES[op])
    elif op in _OPAQUE:
        flags.append("hidden")
    return NodeType("" if op == "CppFunction" else op, tuple(flags), function)


def _function(type: Any) -> Function:
    """The class of a custom Function's node, and where its `backward` is defined when Python can tell."""
    cls = getattr(type, "_forward_cls", None) or type
    own = cls.vjp if getattr(cls, "vjp", None) is not _Function.vjp else getattr(cls, "backward", None)
    backward = unwrap(own or cls)
    code = getattr(backward, "__code__", None)
    definition = code_line(code, code.co_firstlineno) if code is not None else None
    return Function(f"{cls.__module__}.{cls.__qualname__}", definition)


# -- attributes --------------------------------------------------------------------------------------------------------

_SIGNED_FROM = 2**63


class _NothingIn(dict[tuple[str, ...], Mapping[str, Any]]):
    """The attributes of nodes without plain ones, by the slots that hold nothing: each is None."""

    def __missing__(self, empty: tuple[str, ...]) -> Mapping[str, Any]:
        made = self[empty] = _mapping((), (), empty)
        return made


class Attributes:
    """Reads the attributes of the nodes of one walk; `nothing_in` has those of nodes without plain ones."""

    def __init__(self) -> None:
        self._known: dict[Any, Mapping[str, Any]] = {}
        self.nothing_in = _NothingIn({(): NO_ATTRIBUTES})

    def read(
        self, node: Node, plain: tuple[str, ...], fetch: FetchAll | None, empty: Sequence[str]
    ) -> Mapping[str, Any]:
        """Plain attributes, as the node's `slots.Plan` has them, and None for the slots in `empty`, which hold nothing."""
        values: tuple[Any, ...] = ()
        try:
            if fetch is not None:
                values = fetch(node)
            key = (plain, values, tuple(map(type, values)), *empty)  # types, because 1 == 1.0 == True
            known = self._known.get(key)
        except RuntimeError:  # one cannot be read: ask one by one
            return _mapping(plain, tuple([_one(node, name) for name in plain]), empty)
        except TypeError:  # a list or a symbolic size, which have no hash
            return _mapping(plain, values, empty)
        if known is None:
            known = self._known[key] = _mapping(plain, values, empty)
        return known


def _mapping(plain: tuple[str, ...], values: tuple[Any, ...], empty: Sequence[str]) -> Mapping[str, Any]:
    values_by_name = dict(zip(plain, map(_decoded, values))) | dict.fromkeys(empty)
    return {name: values_by_name[name] for name in sorted(values_by_name)}


def _one(node: Node, name: str) -> Any:
    try:
        return getattr(node, SAVED + name)
    except RuntimeError as error:
        return f"unreadable: {str(error).splitlines()[0]}"


def _decoded(value: Any) -> Any:
    """A non-tensor attribute as plain data. An int64 that torch hands out as unsigned is made negative again."""
    kind = type(value)
    if kind is int:
        return value - 2**64 if value >= _SIGNED_FROM else value
    if value is None or kind in (bool, float, str):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_decoded(item) for item in value)
    return str(value)


# -- DTensors ----------------------------------------------------------------------------------------------------------

PLACEMENTS, COLLECTIVE, BYTES = "placements", "collective", "collective bytes"
"""Attributes of a node: how its tensor lies on the mesh, and what moving it takes, in bytes of one process's tensor."""
_MOVES = "RedistributeBackward"
_TELLS = ("_ToTorchTensorBackward", _MOVES)


def placements(
    nodes: Sequence[Node],
    ops: Sequence[str],
    ends: Iterator[tuple[int, int]],
    variables: Mapping[int, torch.Tensor],
    shards: Mapping[int, torch.Tensor],
) -> dict[int, dict[str, Any]]:
    """Attributes to add, by node. `ends` are consumer and producer of every edge; `variables` the leaves by node.

    `shards` are what this process holds of leaves that were gathered, by their identity.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return {}
    attributes: dict[int, dict[str, Any]] = {}
    for i, variable in variables.items():
        shard = shards.get(id(variable))
        spec = getattr(variable if shard is None else shard, "_spec", None)
        if spec is not None:
            with suppress(AttributeError, TypeError):
                attributes[i] = {PLACEMENTS: _words(spec)}
                if shard is not None:
                    gathered = getattr(
                        variable, "_local_tensor", variable
                    )  # other dimensions of the mesh may cut it still
                    attributes[i] |= {COLLECTIVE: "all_gather", BYTES: gathered.numel() * gathered.itemsize}
    moves = {i for i, op in enumerate(ops) if op == _MOVES}
    if not moves:
        return attributes
    target = {producer: consumer for consumer, producer in ends if producer in moves and ops[consumer] in _TELLS}
    for i in moves:
        with suppress(AttributeError, TypeError):
            before = nodes[i].current_spec
            after = _spec(nodes[target[i]]) if i in target else None
            moved = after is not None and _placed(after) != _placed(before)
            to = _placed(after) if after is not None else "placements that autograd does not keep"
            attributes[i] = {PLACEMENTS: f"from {_words(before)} to {to}" if moved or after is None else _words(before)}
            if moved:
                attributes[i] |= _move(before, after)
    return attributes


def _spec(node: Node) -> Any:
    return getattr(node, "dtensor_spec", None) or getattr(node, "current_spec", None)


def _placed(spec: Any) -> str:
    return ", ".join(str(placement) for placement in spec.placements)


def _words(spec: Any) -> str:
    """`S(0) on tp=2`: placements, then the dimensions of the mesh."""
    mesh = spec.mesh
    names = mesh.mesh_dim_names or tuple(f"dim{i}" for i in range(len(mesh.shape)))
    return f"{_placed(spec)} on {', '.join(f'{name}={size}' for name, size in zip(names, mesh.shape))}"


def _move(before: Any, after: Any) -> dict[str, Any]:
    """The collectives that lead from one placement to the other, and the bytes of the larger of both local tensors."""
    steps = [_collective(start, end) for start, end in zip(before.placements, after.placements)]
    said = [step for step in steps if step]
    if not said:
        return {}
    meta = before.tensor_meta
    whole = prod(meta.shape) * meta.dtype.itemsize
    return {COLLECTIVE: ", ".join(said), BYTES: max(whole // _shards(before), whole // _shards(after))}


def _shards(spec: Any) -> int:
    """Parts that the tensor is cut into."""
    return prod(size for size, placement in zip(spec.mesh.shape, spec.placements) if placement.is_shard())


def _collective(before: Any, after: Any) -> str:
    if before == after:
        return ""
    if before.is_partial():
        return "all_reduce" if after.is_replicate() else "reduce_scatter"
    if before.is_shard():
        return "all_gather" if after.is_replicate() else "all_to_all" if after.is_shard() else ""
    return ""  # a part of what every process has
