"""What was cut off, as nodes of the graph that goes on without it: walked when a line
cuts, once a line and step, into records.

`CutParts` stands between a walk and its attribution, so that modules and lines are
known of these nodes, too. No tensor is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from gradviz.graph import Edge, Graph, Leaf, Node
from gradviz.graph.origins import common
from gradviz.walker.description import Attribution, BareGraph, Places
from gradviz.walker.names import Names
from gradviz.walker.private import LAST
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture
from gradviz.wording import plural

if TYPE_CHECKING:
    from gradviz.cuts.lines import CutWatch, SeenCut

Key = tuple[str, int]
"""What tells a node from all others: a number for an op, the identity of a leaf."""


class CutPart(NamedTuple):
    """The graph behind tensors when they were cut off, and its leaves by node. `step`
    counts the backward calls before.
    """

    graph: Graph
    leaves: Mapping[int, weakref.ref[torch.Tensor]]
    step: int

    def identities(self) -> Iterator[tuple[Key, torch.Tensor | None]]:
        """What tells each node from all others, and the tensor of a leaf that is alive."""
        for node in self.graph.nodes:
            tensor = self.leaves[node.id]() if node.id in self.leaves else None
            if tensor is not None:
                yield ("leaf", id(tensor)), tensor
            elif node.sequence is not None:
                yield ("op", node.sequence), None
            else:
                yield (f"dead leaf of {id(self.leaves)}", node.id), None


def part_behind(tensors: Sequence[torch.Tensor], step: int) -> CutPart | None:
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
    leaves = {node: weakref.ref(leaf) for node, leaf in walks[0].variables.items()}
    return CutPart(graph, leaves, step)


class Drop(NamedTuple):
    """One line that cuts, and what it dropped. `outputs` are those that have no graph
    because of it, by number.
    """

    seen: SeenCut
    part: CutPart
    outputs: Sequence[int] = ()


class Taker(NamedTuple):
    """A node of a graph. `takes`: 2 if it has inputs without a gradient, 1 if no op
    computed any of its inputs, else 0.
    """

    node: int
    sequence: int
    takes: int


def takers(
    sequences: Sequence[int],
    edges: Iterable[Edge],
    others: Mapping[int, int],
) -> list[Taker]:
    """The ops of a graph; `others` counts inputs of each that need no gradient."""
    fed = {edge.consumer for edge in edges if sequences[edge.producer] != LAST}
    return [
        Taker(node, number, 2 if node in others else int(node not in fed))
        for node, number in enumerate(sequences)
        if number != LAST
    ]


@dataclass
class _Ghost:
    """A node that is added. `cut` and `users`, who go on with the result: of scissors."""

    node: Node
    leaf: Leaf | None = None
    tensor: torch.Tensor | None = None  # of a leaf that is alive
    name: str = ""  # of a leaf that no variable of the caller leads to
    cut: SeenCut | None = None
    users: Sequence[int] = ()


class CutParts:
    """An attribution for one walk that asks another one, and `joined` adds to the graph
    what was cut off of it.

    Nodes that are added are numbered on from those of the walk.
    """

    def __init__(
        self,
        watch: CutWatch,
        attribution: Attribution | None,
        drops: Sequence[Drop],
    ) -> None:
        self._watch, self._attribution, self._drops = watch, attribution, drops
        self.kind: Literal["", "recorded", "inferred"] = ""
        if attribution is not None:
            self.kind = attribution.kind

        self._first = 0  # the number of the first one
        self._ghosts: list[_Ghost] = []
        self._edges: list[Edge] = []
        self._numbers: dict[Key, int] = {}
        # what stands for an output without a graph
        self._roots: dict[int, int] = {}

    def places(self, bare: BareGraph) -> Places:
        """Where the nodes of the walk were made. Those that are added are told here."""
        self._first = len(bare.sequences)
        for node, number in enumerate(bare.sequences):
            leaf = bare.variables.get(node)
            key = ("op", number) if leaf is None else ("leaf", id(leaf))
            self._numbers[key] = node

        entered: Mapping[SeenCut, Sequence[int]] = {}
        if self._drops:
            nodes = takers(bare.sequences, bare.edges, bare.none_inputs)
            entered = self._watch.entering(nodes)
        for drop in self._drops:
            if drop.outputs or drop.seen in entered or self._has_new(drop):
                self._add(drop, entered.get(drop.seen, ()))

        places = self._attributed(bare)
        count = self._first + len(self._ghosts)
        scopes = list(islice(places.scope_of, count))
        sources = list(islice(places.source_of, count))
        script_lines = list(islice(places.script_line_of, count))

        for number, ghost in enumerate(self._ghosts, self._first):
            scope, source = scopes[number], sources[number]
            if ghost.cut is not None:
                scope, source = self._scope_of(number, places, scopes), ghost.cut.source
            ghost.name = places.names.get(number, "")
            ghost.node = ghost.node._replace(
                scope=scope,
                source=source,
                script_line=script_lines[number],
                assigned=places.assigned.get(number, ""),
                names=(),
                flags=(*ghost.node.flags, "cut"),
            )

        # what else is said of nodes is looked up in the graph of the walk
        return places._replace(
            scope_of=scopes,
            source_of=sources,
            script_line_of=script_lines,
            names=self._of_the_walk(places.names),
            assigned=self._of_the_walk(places.assigned),
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

    def _of_the_walk(self, names: Mapping[int, str]) -> dict[int, str]:
        return {node: name for node, name in names.items() if node < self._first}

    def _scope_of(
        self, scissors: int, places: Places, scopes: Sequence[int | None]
    ) -> int | None:
        """The module in which both happens, what is cut off and what goes on with it."""
        users = self._ghosts[scissors - self._first].users
        ends = {edge.producer for edge in self._edges if edge.consumer == scissors}
        within = {scopes[end] for end in ends.union(users)}
        inner = [scope for scope in within if scope is not None]
        if len(inner) < len(within) or not inner or scissors in self._roots.values():
            return None
        return common(places.scopes, inner)

    # -- what is added -----------------------------------------------------------------

    def _has_new(self, drop: Drop) -> bool:
        """Whether a line of this step has dropped what was computed from a leaf that is
        not in the graph.
        """
        part = drop.part
        computed = len(part.graph.nodes) > len(part.graph.leaves)
        if part.step != self._watch.step or not computed:
            return False
        leaves = {key for key, tensor in part.identities() if tensor is not None}
        return not leaves <= self._numbers.keys()

    def _add(self, drop: Drop, users: Sequence[int]) -> None:
        graph, numbers = drop.part.graph, list[int]()
        fresh = set[int]()
        for node, (key, tensor) in zip(graph.nodes, drop.part.identities()):
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
        outputs = (roots[0].tensor,) if len(roots) == 1 else ()
        node = Node(0, f"\u2702 {drop.seen.operation}", outputs, drop.seen.number)
        scissors = self._append(_Ghost(node, cut=drop.seen, users=users))
        for position, root in enumerate(roots):
            producer = numbers[root.node or 0]
            self._edges.append(Edge(scissors, producer, root.output, position))
        for user in users:
            self._edges.append(Edge(user, scissors, 0, _LAST_POSITION + scissors))
        self._roots.update(dict.fromkeys(drop.outputs, scissors))

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
            node = ghost.node._replace(id=id_of(number))
            if ghost.leaf is not None:
                leaf = _named(ghost.leaf, ghost, names)
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


def _named(leaf: Leaf, ghost: _Ghost, names: Names) -> Leaf:
    if ghost.tensor is None:
        return leaf
    kind: Any = names.kind(ghost.tensor)
    own_names = names.leaf(ghost.tensor) or tuple(filter(None, (ghost.name,)))
    return leaf._replace(names=own_names, kind=kind)


_LAST_POSITION = 1_000_000
"""Of what comes back in: no op takes so many inputs."""
