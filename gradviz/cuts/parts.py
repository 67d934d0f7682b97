"""What was cut off, as nodes of the graph that goes on without it: walked when a line
cuts, once a line and step, into records.

`CutParts` stands between a walk and its attribution, so that modules and lines are
known of these nodes, too. No tensor is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from gradviz.cuts.part import CutPart, Key, keys
from gradviz.graph import Edge, Graph, Leaf, Node, TensorInfo
from gradviz.graph.origins import common
from gradviz.source.cut import Cut
from gradviz.walker.description import Attribution, BareGraph, Places
from gradviz.walker.names import Names
from gradviz.walker.private import LAST
from gradviz.wording import plural

if TYPE_CHECKING:
    from gradviz.cuts.lines import SeenCut


class Drop(NamedTuple):
    """One line that cuts: what it did, and what it dropped. `outputs` are those that
    have no graph because of it, by number.
    """

    seen: SeenCut
    cut: Cut
    parts: Sequence[CutPart]
    outputs: tuple[int, ...] = ()


class Taker(NamedTuple):
    """A node of a graph. `takes`: 2 if it has inputs without a gradient, 1 if no op
    computed any of its inputs, else 0.
    """

    node: int
    sequence: int
    takes: int


Entering = Callable[[Sequence[Taker]], "Mapping[SeenCut, Sequence[int]]"]
"""Tells which nodes take in what lines have cut off: see `CutWatch.entering`."""


def takers(
    sequences: Sequence[int],
    edges: Iterable[Edge],
    others: Mapping[int, int],
) -> list[Taker]:
    """The ops of a graph; `others` counts inputs of each that need no gradient."""
    fed = {edge.consumer for edge in edges if sequences[edge.producer] != LAST}
    return [
        Taker(
            node,
            number,
            2 if node in others else int(node not in fed),
        )
        for node, number in enumerate(sequences)
        if number != LAST
    ]


@dataclass
class _Ghost:
    """A node that is added. `cut` and `users`, who go on with the result: of scissors."""

    node: Node
    leaf: Leaf | None = None
    tensor: torch.Tensor | None = None  # of a leaf that is alive
    cut: Cut | None = None
    users: Sequence[int] = ()


class CutParts:
    """An attribution for one walk that asks another one, and `joined` adds to the graph
    what was cut off of it.

    Nodes that are added are numbered on from those of the walk.
    """

    def __init__(
        self,
        attribution: Attribution | None,
        drops: Sequence[Drop],
        step: int,
        entering: Entering,
    ) -> None:
        self._attribution, self._drops, self._step = attribution, drops, step
        self._entering = entering
        self.kind: Literal["", "recorded", "inferred"] = ""
        if attribution is not None:
            self.kind = attribution.kind

        self._first = 0  # the number of the first one
        self._ghosts: list[_Ghost] = []
        self._edges: list[Edge] = []
        self._numbers: dict[Key, int] = {}
        # what stands for an output without a graph
        self._roots: dict[int, int] = {}
        self._places = Places()

    def places(self, bare: BareGraph) -> Places:
        self._first = len(bare.sequences)
        for node, number in enumerate(bare.sequences):
            leaf = bare.variables.get(node)
            key = ("op", number) if leaf is None else ("leaf", id(leaf))
            self._numbers[key] = node

        entered: Mapping[SeenCut, Sequence[int]] = {}
        if self._drops:
            nodes = takers(bare.sequences, bare.edges, bare.none_inputs)
            entered = self._entering(nodes)
        for drop in self._drops:
            if drop.outputs or drop.seen in entered or self._has_new(drop):
                self._add(drop, entered.get(drop.seen, ()))

        places = self._attributed(bare)
        count = self._first + len(self._ghosts)
        self._places = places._replace(
            scope_of=list(islice(places.scope_of, count)),
            source_of=list(islice(places.source_of, count)),
            script_line_of=list(islice(places.script_line_of, count)),
        )
        # what else is said of nodes is looked up in the graph of the walk
        return self._places._replace(
            names=_below(self._first, places.names),
            assigned=_below(self._first, places.assigned),
        )

    def _attributed(self, bare: BareGraph) -> Places:
        """Where all nodes were made, those that are added among them."""
        if self._attribution is None:
            return Places()

        sequences, variables = list(bare.sequences), dict(bare.variables)
        for number, ghost in enumerate(self._ghosts, self._first):
            sequence = ghost.node.sequence
            sequences.append(LAST if ghost.cut or sequence is None else sequence)
            if ghost.tensor is not None:
                variables[number] = ghost.tensor

        return self._attribution.places(
            bare._replace(
                sequences=sequences,
                edges=[*bare.edges, *self._edges],
                variables=variables,
                kinds=[*bare.kinds, *(ghost.node.op for ghost in self._ghosts)],
            )
        )

    # -- what is added -----------------------------------------------------------------

    def _has_new(self, drop: Drop) -> bool:
        """Whether a line of this step has dropped what was computed from a leaf that is
        not in the graph.
        """
        part = drop.parts[0]
        computed = len(part.graph.nodes) > len(part.graph.leaves)
        if part.step != self._step or not computed:
            return False
        return any(
            key[0] == "leaf" and key not in self._numbers for key, _ in keys(part)
        )

    def _add(self, drop: Drop, users: Sequence[int]) -> None:
        inputs: list[tuple[int, int]] = []
        tensors: list[TensorInfo] = []
        for part in drop.parts:
            inputs += self._add_part(part)
            tensors += [root.tensor for root in part.graph.roots]

        outputs = tuple(tensors) if len(tensors) == 1 else ()
        name = f"\u2702 {drop.cut.operation}"
        scissors = self._append(
            _Ghost(Node(0, name, outputs, drop.cut.at), cut=drop.cut, users=users)
        )
        for position, (node, output) in enumerate(inputs):
            self._edges.append(Edge(scissors, node, output, position))
        for user in users:
            self._edges.append(Edge(user, scissors, 0, _LAST_POSITION + scissors))
        self._roots.update(dict.fromkeys(drop.outputs, scissors))

    def _add_part(self, part: CutPart) -> list[tuple[int, int]]:
        """Add what is new of a part. Returns the node and output of each tensor that
        was dropped.
        """
        graph, numbers = part.graph, list[int]()
        fresh = set[int]()
        for node, (key, tensor) in zip(graph.nodes, keys(part)):
            if key not in self._numbers:
                fresh.add(node.id)
                ghost = _Ghost(node, graph.leaf_of.get(node.id), tensor)
                self._numbers[key] = self._append(ghost)
            numbers.append(self._numbers[key])

        for edge in graph.edges:
            if edge.consumer in fresh:
                consumer, producer = numbers[edge.consumer], numbers[edge.producer]
                self._edges.append(edge._replace(consumer=consumer, producer=producer))

        roots = [root for root in graph.roots if root.node is not None]
        return [(numbers[root.node or 0], root.output) for root in roots]

    def _append(self, ghost: _Ghost) -> int:
        self._ghosts.append(ghost)
        return self._first + len(self._ghosts) - 1

    # -- the graph with it -------------------------------------------------------------

    def joined(self, graph: Graph, names: Names) -> Graph:
        """The graph of the walk with what was cut off."""
        if not self._ghosts:
            return graph

        # the walk has added leaves that are outputs
        shift = len(graph.nodes) - self._first

        def id_of(number: int) -> int:
            return number if number < self._first else number + shift

        nodes, leaves = list(graph.nodes), list(graph.leaves)
        for number, ghost in enumerate(self._ghosts, self._first):
            node = self._node(number, ghost)._replace(id=id_of(number), names=())
            if ghost.leaf is not None:
                leaf = self._leaf(number, ghost.leaf, ghost.tensor, names)
                leaves.append(leaf._replace(node=node.id))
                node = node._replace(names=leaf.names)
            nodes.append(node)

        edges = list(graph.edges)
        for edge in self._edges:
            consumer, producer = id_of(edge.consumer), id_of(edge.producer)
            edges.append(edge._replace(consumer=consumer, producer=producer))
        edges.sort(key=lambda edge: (edge.consumer, edge.position))

        roots = list(graph.roots)
        for output, number in self._roots.items():
            roots[output] = roots[output]._replace(node=id_of(number))

        count = len(leaves) - len(graph.leaves)
        functions = plural(len(self._ghosts) - count, "function")
        parts = f"{functions} and {plural(count, 'leaf', 'leaves')}"
        note = f"dashed: {parts} are cut off at \u2702, so no gradient passes"
        return replace(
            graph,
            notes=(*graph.notes, note),
            nodes=tuple(nodes),
            edges=tuple(edges),
            leaves=tuple(leaves),
            roots=tuple(roots),
        )

    def _leaf(
        self, number: int, leaf: Leaf, tensor: torch.Tensor | None, names: Names
    ) -> Leaf:
        if tensor is None:
            return leaf
        path = self._places.names.get(number)
        own_names = names.leaf(tensor) or ((path,) if path is not None else ())
        kind: Any = names.kind(tensor)
        return leaf._replace(names=own_names, kind=kind)

    def _node(self, number: int, ghost: _Ghost) -> Node:
        places: Any = self._places  # of which the first three are lists
        scope, source = places.scope_of[number], places.source_of[number]
        if ghost.cut is not None:
            scope, source = self._scope_around(number, ghost), ghost.cut.source

        return ghost.node._replace(
            scope=scope,
            source=source,
            script_line=places.script_line_of[number],
            assigned=places.assigned.get(number, ""),
            flags=(*ghost.node.flags, "cut"),
        )

    def _scope_around(self, number: int, scissors: _Ghost) -> int | None:
        """The module in which both happens, what is cut off and what goes on with it."""
        places: Any = self._places
        ends = {edge.producer for edge in self._edges if edge.consumer == number}
        scopes = {places.scope_of[end] for end in ends.union(scissors.users)}
        if not scopes or None in scopes or number in self._roots.values():
            return None
        return common(places.scopes, list(scopes))


_LAST_POSITION = 1_000_000
"""Of what comes back in: no op takes so many inputs."""


def _below(count: int, by_node: Mapping[int, str]) -> dict[int, str]:
    return {node: name for node, name in by_node.items() if node < count}
