"""Bytes that this process holds for models and optimizers, each block once, as sharded here. Reads live tensors, changes none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from gradviz.graph import Graph, RankMemory
from gradviz.ranks.view import saved_bytes
from gradviz.variables.scanner import Namespace, scan
from gradviz.walker.names import registered
from gradviz.walker.private import fsdp_parameters
from gradviz.walker.tensors import parts_of, storage_of

# What FSDP2 and DTensor know of a tensor that the graph holds in pieces. Reads live objects through
# `capture.private`.


def sharded_parameters(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The shards that this process holds of a model's parameters, and the whole ones that are gathered right now."""
    for one in fsdp_parameters(model):
        yield one.shard
        if one.whole is not None:  # of no bytes while it is not gathered
            yield one.whole


def memory_of(graph: Graph, models: Sequence[torch.nn.Module], variables: Sequence[Namespace]) -> RankMemory:
    """What is held now. Call it under `private.without_subclasses()`.

    Parameters of FSDP2 are counted as the shard held here, and in addition as a whole while they are gathered.
    """
    parameters = [tensor for model in models for _, tensor, kind in registered("", model) if kind == "parameter"]
    parameters += [one for model in models for one in sharded_parameters(model)]
    gradients = [gradient for one in parameters if one.is_leaf and (gradient := one.grad) is not None]
    states = [one.value.state for one in scan(variables) if one.kind == "optimizer"]
    return RankMemory(
        saved_bytes(graph),
        _bytes(parameters),
        _bytes(gradients),
        _bytes(tensor for state in states for tensor in _tensors(state)),
    )


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    """The tensors of an optimizer's state: by parameter, then by name."""
    for values in dict(state).values():
        yield from (one for one in dict(values).values() if isinstance(one, torch.Tensor))


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    found: dict[int, int] = {}
    waiting = list(tensors)
    while waiting:
        tensor = waiting.pop()
        parts = parts_of(tensor)
        if parts:
            waiting += [part for _, part in parts]
            continue
        storage = storage_of(tensor)
        if storage is not None:
            found[storage[0]] = storage[1]
    return sum(found.values())
