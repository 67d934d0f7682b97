"""What a backward call runs through: the nodes and leaves behind outputs. Keeps nothing,
and runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradviz.variables.scanner import Namespace
from gradviz.walker.outputs import flatten
from gradviz.walker.private import Node
from gradviz.walker.walk import live_nodes

Models = Sequence[tuple[str, torch.nn.Module]]
"""The models of a run, by name."""
Variables = Sequence[Namespace]
"""The variables of the user's code, of the innermost function first."""


def nodes_behind(outputs: Sequence[Any]) -> list[Node]:
    """The nodes of the graph that a backward call runs through."""
    return live_nodes([output for _, output in flatten(list(outputs))])


def names_behind(outputs: Sequence[Any]) -> dict[int, str]:
    """The names of these nodes, by their number; leaves have none."""
    nodes = nodes_behind(outputs)
    return {node._sequence_nr(): node.name() for node in nodes if leaf_of(node) is None}


def leaf_of(node: Node) -> torch.Tensor | None:
    """The leaf of an AccumulateGrad; None for other nodes."""
    if type(node).__name__ == "AccumulateGrad":
        return getattr(node, "variable", None)
    return None


def leaves_of(nodes: Sequence[Node]) -> dict[int, torch.Tensor]:
    """The leaves among nodes, by identity."""
    leaves = map(leaf_of, nodes)
    return {id(leaf): leaf for leaf in leaves if leaf is not None}


def leaves_behind(outputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    """The leaves that a backward call leads to, by identity."""
    return leaves_of(nodes_behind(outputs))
