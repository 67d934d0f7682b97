"""The graph behind tensors at the moment when a line cuts them off, as records. No
tensor is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from gradviz.graph import Graph
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture

Key = tuple[str, int]
"""What tells a node from all others: a number for an op, the identity of a leaf."""


class CutPart(NamedTuple):
    """The graph behind tensors when they were cut off, and its leaves by node. `step`
    counts the backward calls before.
    """

    graph: Graph
    leaves: Mapping[int, weakref.ref[torch.Tensor]]
    step: int


def part_behind(
    tensors: Sequence[torch.Tensor],
    step: int,
) -> CutPart | None:
    """The graph behind tensors that are cut off; None where reading their nodes could
    add one.
    """
    if any(not tensor.is_leaf and grad_fn_of(tensor) is None for tensor in tensors):
        return None

    walks: list[Walked] = []
    graph = capture(
        list(tensors),
        saved=False,
        need_graph=False,
        read_compiled=False,
        inspect=walks.append,
    )

    return CutPart(
        graph,
        {node: weakref.ref(leaf) for node, leaf in walks[0].variables.items()},
        step,
    )


def keys(part: CutPart) -> Iterator[tuple[Key, torch.Tensor | None]]:
    """What tells each node of a part from all others, and the tensor of a leaf that is
    alive.
    """
    for node in part.graph.nodes:
        tensor = part.leaves[node.id]() if node.id in part.leaves else None
        if tensor is not None:
            yield ("leaf", id(tensor)), tensor
        elif node.sequence is not None:
            yield ("op", node.sequence), None
        else:
            yield (f"dead leaf of {id(part.leaves)}", node.id), None
