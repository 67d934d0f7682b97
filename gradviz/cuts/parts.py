"""What was cut off, as nodes of the graph that goes on without it: the graph of a
tensor that a variable still has, else the leaves behind what a line cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import torch

from gradviz.graph import Edge, Graph, Node, Root
from gradviz.graph.origins import ScopeTree
from gradviz.graph.walks import behind
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture

if TYPE_CHECKING:
    import ast

    from gradviz.cuts.finder import FoundCut
    from gradviz.run.outputs import LiveOutputs


def with_cuts(
    live: LiveOutputs,
    walked: Walked,
    cuts: Sequence[FoundCut],
    live_value: Callable[[ast.AST], torch.Tensor | None],
) -> Graph:
    """A graph that was walked, with what was cut off beside it."""
    graph = walked.graph
    lost = [i for i, root in enumerate(graph.roots) if root.node is None]
    parts: list[tuple[FoundCut, tuple[torch.Tensor, ...]]] = []
    for found in cuts:
        held = live_value(found.value)
        tensors = found.leaves if held is None else (held,)
        if tensors and (found.nodes or lost) and all(map(_can_be_walked, tensors)):
            parts.append((found, tensors))
    if not parts:
        return graph

    whole = capture(
        live.outputs,
        variables=live.variables,
        title=graph.title,
        need_graph=False,
        attribution=live.attribution,
        beside=[tensor for _, tensors in parts for tensor in tensors],
    ).graph
    drawing, others = WithCuts(graph, whole), iter(whole.roots[len(graph.roots) :])
    for found, tensors in parts:
        behind_it = list(islice(others, len(tensors)))
        drawing.add(found, behind_it, () if found.nodes else lost)
    return drawing.graph()


def _can_be_walked(tensor: torch.Tensor) -> bool:
    """Whether nothing is missing that reading would add to the graph."""
    return tensor.is_leaf or grad_fn_of(tensor) is not None


class WithCuts:
    """A graph beside which more was walked, while a node for each cut is added."""

    def __init__(self, graph: Graph, whole: Graph) -> None:
        self._whole, self._scopes = whole, ScopeTree(whole)
        self._roots = list(whole.roots[: len(graph.roots)])
        uncut = set(behind(whole, [root.node for root in self._roots]))
        self._nodes = list(whole.nodes)
        for i, node in enumerate(whole.nodes):
            if node.id not in uncut:
                self._nodes[i] = node._replace(flags=(*node.flags, "cut"), saved=())
        self._edges, self._data = list(whole.edges), list(graph.data)

    def add(
        self, found: FoundCut, roots: Sequence[Root], outputs: Sequence[int]
    ) -> None:
        """Add a cut behind which these roots are. `outputs` are those that have no graph
        because of it, by number.
        """
        cut, number = found.cut, len(self._nodes)
        tensors = (roots[0].tensor,) if len(roots) == 1 else ()
        # in the module in which both happens: what is cut off, and what goes on
        ends = [*(root.node for root in roots), *found.nodes]
        within = {self._nodes[end].scope for end in ends if end is not None}
        scissors = Node(number, f"\u2702 {cut.operation}", tensors, flags=("cut",))
        scope = None if outputs else self._scopes.common(within)
        self._nodes.append(scissors._replace(source=cut.source, scope=scope))

        for position, root in enumerate(roots):
            if root.node is not None:
                self._edges.append(Edge(number, root.node, root.output, position))
        self._add_users(number, found.nodes)
        for output in outputs:
            self._roots[output] = self._roots[output]._replace(node=number)

    def _add_users(self, scissors: int, users: Sequence[int]) -> None:
        """Link a cut to who takes what it gave. That has no other box as data; one that
        is a variable names the cut.
        """
        takers = dict.fromkeys(users)
        for user in users:
            places = [i for i, data in enumerate(self._data) if user in data.nodes]
            if len(places) != 1:
                continue

            data = self._data[places[0]]
            takers |= dict.fromkeys(data.nodes)
            for taker in data.nodes:
                node = self._nodes[taker]
                self._nodes[taker] = node._replace(numbers=node.numbers + 1)
            self._data[places[0]] = data._replace(nodes=(), position=())
            if data.text.isidentifier():
                node = self._nodes[scissors]
                self._nodes[scissors] = node._replace(names=data.names)

        for user in takers:
            self._edges.append(Edge(user, scissors, 0, _LAST_POSITION + scissors))

    def graph(self) -> Graph:
        """The graph with what was added."""
        note = "dashed: what is cut off at \u2702, so no gradient passes"
        return replace(
            self._whole,
            notes=(*self._whole.notes, note),
            nodes=tuple(self._nodes),
            edges=tuple(sorted(self._edges, key=lambda e: (e.consumer, e.position))),
            data=tuple(self._data),
            roots=tuple(self._roots),
        )


_LAST_POSITION = 1_000_000
"""Of what comes back in: no op takes so many inputs."""
