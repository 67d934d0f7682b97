"""What was cut off, as nodes of the graph that goes on without it: the graph of a
tensor that a variable still has, else the leaves behind what a line cut off.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from gradviz.graph import Edge, Graph, Leaf, Node, column
from gradviz.graph.origins import ScopeTree
from gradviz.source.cut import Cut
from gradviz.walker.places import Attribution, BareGraph, Places
from gradviz.walker.private import LAST
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture

if TYPE_CHECKING:
    import ast

    from gradviz.cuts.engine import FoundCut

Tensors = Mapping[int, weakref.ref[torch.Tensor]]
"""The tensors of leaves by node. All references to one tensor are the same object."""


class CutPart(NamedTuple):
    """The graph behind what a line cut off."""

    graph: Graph
    tensors: Tensors


def with_cuts(
    walked: Walked,
    cuts: Sequence[FoundCut],
    live_value: Callable[[ast.AST], torch.Tensor | None],
    attribution: Attribution | None,
) -> Graph:
    """A graph that was walked, with what was cut off beside it."""
    roots = enumerate(walked.graph.roots)
    lost = [i for i, root in roots if root.node is None]
    joined = WithCuts(walked)
    for found in cuts:
        live = live_value(found.lost)
        part = _part_behind([live] if live is not None else found.leaves)
        outputs = () if found.nodes else lost
        if part is not None and (outputs or found.nodes):
            joined.add(found.cut, part, outputs, found.nodes)
    return joined.graph(attribution)


def _part_behind(tensors: Sequence[torch.Tensor]) -> CutPart | None:
    """The graph behind tensors; None where reading their nodes could add one."""
    if not tensors or any(
        not tensor.is_leaf and grad_fn_of(tensor) is None for tensor in tensors
    ):
        return None

    walks: list[Walked] = []
    graph = capture(
        list(tensors),
        saved=False,
        need_graph=False,
        read_compiled=False,
        inspect=walks.append,
    )
    return CutPart(graph, _references(walks[0]))


def _references(walked: Walked) -> Tensors:
    return {node: weakref.ref(leaf) for node, leaf in walked.variables.items()}


def _identity(node: Node, tensors: Tensors) -> tuple[str, int | None]:
    """What tells a node from all others: the tensor of a leaf, the number of an op."""
    if node.id in tensors:
        return "leaf", id(tensors[node.id])
    return "op", node.sequence


class WithCuts:
    """A graph, while what was cut off of it is added: nodes are numbered on."""

    def __init__(self, walked: Walked) -> None:
        graph = walked.graph
        self._graph, self._walked = graph, walked
        self._nodes = list(graph.nodes)
        self._edges = list(graph.edges)
        self._roots, self._data = list(graph.roots), list(graph.data)
        self._leaves: list[Leaf] = []
        self._tensors = dict(walked.variables)
        self._cuts: dict[int, Cut] = {}  # by the node that stands for it
        self._own = _references(walked)
        self._numbers = {_identity(node, self._own): node.id for node in graph.nodes}

    def add(
        self, cut: Cut, part: CutPart, outputs: Sequence[int], users: Sequence[int]
    ) -> None:
        """Add what a line dropped. `outputs` are those that have no graph because of
        it, by number, and `users` the nodes that go on with what it gave.
        """
        graph, tensors = part
        numbers, fresh = list[int](), set[int]()
        for node in graph.nodes:
            identity = _identity(node, tensors)
            # two lines may cut off the same tensor, or one that goes on elsewhere
            if identity not in self._numbers:
                fresh.add(node.id)
                self._numbers[identity] = self._append(node)
                if node.id in tensors:
                    tensor = tensors[node.id]()
                    self._add_leaf(graph.leaf_of[node.id], tensor)
            numbers.append(self._numbers[identity])

        for edge in graph.edges:
            if edge.consumer in fresh:
                consumer, producer = numbers[edge.consumer], numbers[edge.producer]
                self._edges.append(edge._replace(consumer=consumer, producer=producer))

        roots = [root for root in graph.roots if root.node is not None]
        lost = (roots[0].tensor,) if len(roots) == 1 else ()
        scissors = self._append(Node(0, f"\u2702 {cut.operation}", lost))
        self._cuts[scissors] = cut
        for position, root in enumerate(roots):
            producer = numbers[root.node or 0]
            self._edges.append(Edge(scissors, producer, root.output, position))
        self._add_users(scissors, users)
        for output in outputs:
            root = self._roots[output]
            self._roots[output] = root._replace(node=scissors)

    def _add_users(self, scissors: int, users: Sequence[int]) -> None:
        """Link a cut to who takes what it gave. That has no other box as data; one that
        is a variable names the cut.
        """
        takers = dict.fromkeys(users)
        for user in users:
            given = [i for i, one in enumerate(self._data) if user in one.nodes]
            if len(given) == 1:
                data = self._data[given[0]]
                takers |= dict.fromkeys(data.nodes)
                for taker in data.nodes:
                    node = self._nodes[taker]
                    self._nodes[taker] = node._replace(numbers=node.numbers + 1)
                self._data[given[0]] = data._replace(nodes=(), position=())
                if data.text.isidentifier():
                    node = self._nodes[scissors]
                    self._nodes[scissors] = node._replace(names=data.names)
        for user in takers:
            self._edges.append(Edge(user, scissors, 0, _LAST_POSITION + scissors))

    def _append(self, node: Node) -> int:
        flags = (*node.flags, "cut")
        self._nodes.append(node._replace(id=len(self._nodes), flags=flags))
        return len(self._nodes) - 1

    def _add_leaf(self, leaf: Leaf, tensor: torch.Tensor | None) -> None:
        """Add the leaf of the last node, with the names that the caller has for it."""
        node, known = self._nodes[-1], self._walked.names
        if tensor is not None:
            self._tensors[node.id] = tensor
            kind: Any = known.kind(tensor)
            leaf = leaf._replace(names=known.leaf(tensor), kind=kind)
        self._leaves.append(leaf._replace(node=node.id))
        self._nodes[-1] = node._replace(names=leaf.names)

    def graph(self, attribution: Attribution | None) -> Graph:
        """The graph with what was added, and with modules and lines of that."""
        if not self._cuts:
            return self._graph

        # asked once for all, for calls of modules are numbered together
        places = Places()
        if attribution is not None:
            places = attribution.places(self._bare())
        columns = places.scope_of, places.source_of, places.script_line_of
        for node, scope, source, script_line in zip(list(self._nodes), *columns):
            self._nodes[node.id] = node._replace(
                scope=scope,
                source=source,
                script_line=script_line,
                assigned=places.assigned.get(node.id, ""),
            )

        edges = sorted(self._edges, key=lambda edge: (edge.consumer, edge.position))
        note = "dashed: what is cut off at \u2702, so no gradient passes"
        graph = replace(
            self._graph,
            notes=(*self._graph.notes, note),
            nodes=tuple(self._nodes),
            edges=tuple(edges),
            leaves=(*self._graph.leaves, *self._leaves),
            data=tuple(self._data),
            roots=tuple(self._roots),
            scopes=places.scopes,
        )

        scopes = ScopeTree(graph)
        for number, cut in self._cuts.items():
            # in the module in which both happens: what is cut off, and what goes on
            lost = [edge.producer for edge in graph.inputs(number)]
            users = [edge.consumer for edge in graph.consumers(number)]
            within = {graph.nodes[end].scope for end in (*lost, *users)}
            self._nodes[number] = graph.nodes[number]._replace(
                source=cut.source,
                scope=None if number in graph.roots_of else scopes.common(within),
            )
        return replace(graph, nodes=tuple(self._nodes))

    def _bare(self) -> BareGraph:
        """All nodes, to be asked where they were made."""
        walked, first = self._walked, len(self._graph.nodes)
        return BareGraph(
            [LAST if node.sequence is None else node.sequence for node in self._nodes],
            self._edges,
            self._tensors,
            kinds=[*map(type, walked.nodes), *column(self._nodes[first:], "op")],
            modules=walked.names.modules,
        )


_LAST_POSITION = 1_000_000
"""Of what comes back in: no op takes so many inputs."""
