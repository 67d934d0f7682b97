"""Nodes that run many operations as one, such as compiled functions: where the walk has them opened, by whom the row names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from gradviz.features import hook
from gradviz.graph import Graph
from gradviz.variables.scanner import Namespace
from gradviz.walker.private import Node

_OPEN, _REMEMBER = "gradviz.compiled.live:opened", "gradviz.compiled.live:remember_regions"


class RegionPart(NamedTuple):
    """What a node of the graph is in a region: operation number `operation` of it, or an entry, where that is None.

    `region` is the id of the node that torch recorded. `gives` says, by the position of an edge, which result of the operation
    goes along it, or which gradient that comes in here; None where no gradient goes.
    """

    region: int
    operation: int | None
    gives: tuple[int | None, ...]


class Opened(NamedTuple):
    """A graph with the operations of its regions behind all other nodes, and what each of these is, by id."""

    graph: Graph
    parts: Mapping[int, RegionPart]


def opened(
    graph: Graph, nodes: Sequence[Node], model: torch.nn.Module | None, variables: Sequence[Namespace]
) -> Opened:
    """The graph of these live nodes with its regions open. `model` and `variables` have names for modules."""
    open_regions = hook(_OPEN)
    found: Opened = Opened(graph, {}) if open_regions is None else open_regions(graph, nodes, model, variables)
    return found


def remember_regions() -> None:
    """Read the regions that exist now: a backward makes torch drop what it knows of them."""
    remember = hook(_REMEMBER)
    if remember is not None:
        remember()
