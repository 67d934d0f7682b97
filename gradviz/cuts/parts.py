"""What was cut off, as nodes of the graph that goes on without it: walked when a line
cuts, once a line and step, into records. No tensor is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from gradviz.graph import Edge, Graph, Leaf, Node, Scope, column
from gradviz.graph.origins import common
from gradviz.walker.description import CHECKPOINT
from gradviz.walker.places import Attribution, BareGraph, Places
from gradviz.walker.private import LAST
from gradviz.walker.slots import modules_behind
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture
from gradviz.wording import plural

if TYPE_CHECKING:
    from gradviz.cuts.lines import SeenCut

Key = tuple[str, int]
"""What tells a node from all others: a number for an op, the identity of a leaf."""


class CutPart(NamedTuple):
    """The graph behind tensors when they were cut off, and its leaves by node. `step`
    counts the backward calls before.
    """

    graph: Graph
    leaves: Mapping[int, weakref.ref[torch.Tensor]]
    step: int

    def identities(
        self,
    ) -> Iterator[tuple[Key, torch.Tensor | None]]:
        """What tells each node from all others, and the tensor of a leaf that is alive."""
        for node in self.graph.nodes:
            tensor = self.leaves[node.id]() if node.id in self.leaves else None
            if tensor is not None:
                yield ("leaf", id(tensor)), tensor
            elif node.sequence is not None:
                yield ("op", node.sequence), None
            else:
                yield (f"dead leaf of {id(self.leaves)}", node.id), None


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
    leaves = {node: weakref.ref(leaf) for node, leaf in walks[0].variables.items()}
    return CutPart(graph, leaves, step)


class Drop(NamedTuple):
    """One line that cuts, and what it dropped. `outputs` are those that have no graph
    because of it, by number, and `users` the nodes that go on with what it gave.
    """

    seen: SeenCut
    part: CutPart
    outputs: Sequence[int] = ()
    users: Sequence[int] = ()


class Taker(NamedTuple):
    """A node of a graph. `takes`: 2 if it has inputs without a gradient, 1 if no op
    computed any of its inputs, else 0.
    """

    node: int
    sequence: int
    takes: int


def takers_of(graph: Graph) -> list[Taker]:
    """The ops of a graph."""
    others = column(graph.nodes, "none_inputs")
    sequences = column(graph.nodes, "sequence")
    edges = zip(column(graph.edges, "consumer"), column(graph.edges, "producer"))
    fed = {node for node, producer in edges if sequences[producer] is not None}
    return [
        Taker(node, number, 2 if others[node] else int(node not in fed))
        for node, number in enumerate(sequences)
        if number is not None
    ]


class WithCuts:
    """A graph, while what was cut off of it is added: nodes are numbered on."""

    def __init__(self, graph: Graph, walked: Walked) -> None:
        self._graph, self._walked = graph, walked
        self._nodes, self._leaves = list(graph.nodes), list[Leaf]()
        self._edges, self._roots = list(graph.edges), list(graph.roots)
        self._tensors = dict(walked.variables)
        self._cuts: dict[int, Drop] = {}  # by the node that stands for it
        self._numbers: dict[Key, int] = {}
        for node in self._nodes:
            leaf = self._tensors.get(node.id)
            key = ("op", node.sequence or 0) if leaf is None else ("leaf", id(leaf))
            self._numbers[key] = node.id

    def has_new(self, part: CutPart, step: int) -> bool:
        """Whether a line of this step has dropped what was computed from a leaf that is
        not in the graph.
        """
        computed = len(part.graph.nodes) > len(part.graph.leaves)
        leaves = {key for key, tensor in part.identities() if tensor is not None}
        return computed and part.step == step and not leaves <= self._numbers.keys()

    def add(self, drop: Drop) -> None:
        graph, numbers = drop.part.graph, list[int]()
        fresh = set[int]()
        for node, (key, tensor) in zip(graph.nodes, drop.part.identities()):
            # two lines may cut off the same tensor, or one that goes on elsewhere
            if key not in self._numbers:
                fresh.add(node.id)
                self._numbers[key] = self._append(node._replace(names=()))
                if tensor is not None:
                    self._tensors[self._numbers[key]] = tensor
                if node.id in graph.leaf_of:
                    leaf = graph.leaf_of[node.id]
                    self._leaves.append(leaf._replace(node=self._numbers[key]))
            numbers.append(self._numbers[key])

        for edge in graph.edges:
            if edge.consumer in fresh:
                consumer, producer = numbers[edge.consumer], numbers[edge.producer]
                self._edges.append(edge._replace(consumer=consumer, producer=producer))

        roots = [root for root in graph.roots if root.node is not None]
        outputs = (roots[0].tensor,) if len(roots) == 1 else ()
        scissors = self._append(Node(0, f"\u2702 {drop.seen.operation}", outputs))
        self._cuts[scissors] = drop
        for position, root in enumerate(roots):
            producer = numbers[root.node or 0]
            self._edges.append(Edge(scissors, producer, root.output, position))
        for user in drop.users:
            self._edges.append(Edge(user, scissors, 0, _LAST_POSITION + scissors))
        for output in drop.outputs:
            self._roots[output] = self._roots[output]._replace(node=scissors)

    def _append(self, node: Node) -> int:
        flags = (*node.flags, "cut")
        self._nodes.append(node._replace(id=len(self._nodes), flags=flags))
        return len(self._nodes) - 1

    def graph(self, attribution: Attribution | None) -> Graph:
        """The graph with what was added, and with modules and lines of that."""
        graph, first = self._graph, len(self._graph.nodes)
        if not self._cuts:
            return graph

        # asked once for all, for calls of modules are numbered together
        places = Places()
        if attribution is not None:
            places = attribution.places(self._bare())
        columns = places.scope_of, places.source_of, places.script_line_of
        for node, scope, source, script_line in zip(list(self._nodes), *columns):
            if node.id >= first:
                assigned = places.assigned.get(node.id, "")
                node = node._replace(source=source, assigned=assigned)
                node = node._replace(script_line=script_line)
            self._nodes[node.id] = node._replace(scope=scope)
        for number, drop in self._cuts.items():
            self._nodes[number] = self._nodes[number]._replace(
                sequence=drop.seen.number,
                source=drop.seen.source,
                scope=self._scope_around(number, places.scopes),
            )

        leaves = list(graph.leaves)
        for leaf in self._leaves:
            leaves.append(self._named(leaf, places.names))
            node = self._nodes[leaf.node]
            self._nodes[leaf.node] = node._replace(names=leaves[-1].names)

        functions = plural(len(self._nodes) - first - len(self._leaves), "function")
        parts = f"{functions} and {plural(len(self._leaves), 'leaf', 'leaves')}"
        note = f"dashed: {parts} are cut off at \u2702, so no gradient passes"
        return replace(
            graph,
            notes=(*graph.notes, note),
            nodes=tuple(self._nodes),
            edges=tuple(sorted(self._edges, key=lambda e: (e.consumer, e.position))),
            leaves=tuple(leaves),
            roots=tuple(self._roots),
            scopes=places.scopes,
        )

    def _bare(self) -> BareGraph:
        """All nodes, to be asked where they were made."""
        walked, first = self._walked, len(self._graph.nodes)
        checkpoints = {
            number: modules_behind(node)
            for number, node in enumerate(walked.nodes)
            if type(node).__name__ == CHECKPOINT
        }
        return BareGraph(
            [LAST if node.sequence is None else node.sequence for node in self._nodes],
            self._edges,
            self._tensors,
            checkpoints,
            [*map(type, walked.nodes), *(node.op for node in self._nodes[first:])],
            walked.names.modules,
        )

    def _named(
        self,
        leaf: Leaf,
        names: Mapping[int, str],
    ) -> Leaf:
        """A leaf with the names and the kind that it has for the caller."""
        tensor, known = self._tensors.get(leaf.node), self._walked.names
        if tensor is None:
            return leaf
        own = known.leaf(tensor) or tuple(filter(None, (names.get(leaf.node),)))
        kind: Any = known.kind(tensor)
        return leaf._replace(names=own, kind=kind)

    def _scope_around(
        self,
        scissors: int,
        scopes: Sequence[Scope],
    ) -> int | None:
        """The module in which both happens, what is cut off and what goes on with it."""
        drop = self._cuts[scissors]
        ends = {edge.producer for edge in self._edges if edge.consumer == scissors}
        within = {self._nodes[end].scope for end in ends.union(drop.users)}
        inner = [scope for scope in within if scope is not None]
        if len(inner) < len(within) or not inner or drop.outputs:
            return None
        return common(scopes, inner)


_LAST_POSITION = 1_000_000
"""Of what comes back in: no op takes so many inputs."""
