"""What was cut off, as nodes of the graph that goes on without it: walked when a line
cuts, once a line and step, into records.

`CutParts` stands between a walk and its attribution, so that modules and lines are
known of these nodes, too. No tensor is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from gradviz.graph import Edge, Graph, Leaf, Node, SourceLine
from gradviz.graph.origins import common
from gradviz.source.cut import Cut
from gradviz.walker.description import Attribution, BareGraph, Places
from gradviz.walker.names import Names
from gradviz.walker.private import LAST
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture
from gradviz.wording import plural

if TYPE_CHECKING:
    from gradviz.cuts.lines import SeenCut

_Key = tuple[Literal["leaf", "op"], int]


class CutPart(NamedTuple):
    """The graph behind tensors when they were cut off, and its leaves by node. `step`
    counts the backward calls before.
    """

    graph: Graph
    leaves: Mapping[int, weakref.ref[torch.Tensor]]
    step: int


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


@dataclass
class _Ghosts:
    """Nodes that are added, and edges of them, numbered on from those of the walk."""

    first: int
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    leaves: dict[int, tuple[Leaf, torch.Tensor | None]] = field(default_factory=dict)
    # who goes on with what a line cut off
    users: dict[int, list[int]] = field(default_factory=dict)
    sources: dict[int, SourceLine] = field(default_factory=dict)
    # what stands for an output without a graph
    roots: dict[int, int] = field(default_factory=dict)

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return self.first + len(self.nodes) - 1


class CutParts:
    """An attribution for one walk that asks another one, and `joined` adds to the graph
    what was cut off of it.
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
        self._known: dict[_Key, int] = {}
        if attribution is not None:
            self.kind: Literal["", "recorded", "inferred"] = attribution.kind
        else:
            self.kind = ""

    def places(self, bare: BareGraph) -> Places:
        count = len(bare.sequences)
        for node, number in enumerate(bare.sequences):
            if node in bare.variables:
                key: _Key = ("leaf", id(bare.variables[node]))
            else:
                key = ("op", number)
            self._known[key] = node

        if self._drops:
            self._entered = self._entering(
                takers(bare.sequences, bare.edges, bare.none_inputs)
            )
        else:
            self._entered = {}

        self._ghosts = ghosts = _Ghosts(count)
        for drop in self._drops_that_matter():
            self._add(drop)

        numbers = [
            LAST if i in ghosts.users or node.sequence is None else node.sequence
            for i, node in enumerate(ghosts.nodes, count)
        ]
        alive = {
            i: tensor for i, (_, tensor) in ghosts.leaves.items() if tensor is not None
        }
        whole = bare._replace(
            sequences=[*bare.sequences, *numbers],
            edges=[*bare.edges, *ghosts.edges],
            variables={**bare.variables, **alive},
            kinds=[*bare.kinds, *(node.op for node in ghosts.nodes)],
        )

        if self._attribution is not None:
            told = self._attribution.places(whole)
        else:
            told = Places()

        every = count + len(numbers)
        self._scope_of = list(islice(told.scope_of, every))
        self._source_of = list(islice(told.source_of, every))
        self._script_line_of = list(islice(told.script_line_of, every))
        self._told = told
        return told._replace(
            scope_of=self._scope_of,
            source_of=self._source_of,
            script_line_of=self._script_line_of,
            names={i: name for i, name in told.names.items() if i < count},
            assigned={i: name for i, name in told.assigned.items() if i < count},
        )

    # -- what is added -----------------------------------------------------------------

    def _drops_that_matter(self) -> Iterator[Drop]:
        """Those whose result came back into the graph or is an output, and those of
        this step that hold what is not in it.
        """
        waiting = list(self._drops)
        while (drop := next(filter(self._matters, waiting), None)) is not None:
            waiting.remove(drop)
            yield drop

    def _matters(self, drop: Drop) -> bool:
        if drop.outputs or drop.seen in self._entered:
            return True
        part = drop.parts[0]
        # else nothing but a leaf was looked at
        computed = len(part.graph.nodes) > len(part.graph.leaves)
        new = any(key[0] == "leaf" and key not in self._known for key, _ in _keys(part))
        return computed and new and part.step == self._step

    def _add(self, drop: Drop) -> None:
        cut, ghosts = drop.cut, self._ghosts
        dropped = [end for part in drop.parts for end in self._add_part(part)]
        given = tuple(root.tensor for part in drop.parts for root in part.graph.roots)
        place = ghosts.add(
            Node(
                0,
                f"\u2702 {cut.operation}",
                given if len(given) == 1 else (),
                cut.at,
            )
        )
        ghosts.edges += [Edge(place, *end, i) for i, end in enumerate(dropped)]
        users = list(self._entered.get(drop.seen, ()))
        ghosts.users[place] = users
        ghosts.edges += [Edge(user, place, 0, _BEHIND + place) for user in users]
        ghosts.sources[place] = cut.source
        ghosts.roots.update(dict.fromkeys(drop.outputs, place))

    def _add_part(
        self,
        part: CutPart,
    ) -> list[tuple[int, int]]:
        """Add what is new of a part. Returns the node and output of each tensor that
        was dropped.
        """
        ghosts, ids, fresh = self._ghosts, list[int](), set[int]()
        for node, (key, tensor) in zip(
            part.graph.nodes,
            _keys(part),
        ):
            if key not in self._known:
                fresh.add(node.id)
                self._known[key] = ghosts.add(node)
                if node.id in part.graph.leaf_of:
                    ghosts.leaves[self._known[key]] = (
                        part.graph.leaf_of[node.id],
                        tensor,
                    )
            ids.append(self._known[key])

        for edge in part.graph.edges:
            if edge.consumer in fresh:
                ghosts.edges.append(
                    edge._replace(
                        consumer=ids[edge.consumer], producer=ids[edge.producer]
                    )
                )

        return [
            (ids[root.node], root.output)
            for root in part.graph.roots
            if root.node is not None
        ]

    # -- the graph with it -------------------------------------------------------------

    def joined(self, graph: Graph, names: Names) -> Graph:
        """The graph of the walk with what was cut off."""
        ghosts = self._ghosts
        if not ghosts.nodes:
            return graph

        shift = len(graph.nodes) - ghosts.first
        new = [
            *range(ghosts.first),
            *range(
                ghosts.first + shift,
                ghosts.first + shift + len(ghosts.nodes),
            ),
        ]
        added = [
            edge._replace(
                consumer=new[edge.consumer],
                producer=new[edge.producer],
            )
            for edge in ghosts.edges
        ]
        leaves = tuple(self._leaf(i, new[i], names) for i in ghosts.leaves)
        called = {leaf.node: leaf.names for leaf in leaves}
        nodes = [
            self._node(i, new[i])._replace(names=called.get(new[i], ()))
            for i in range(ghosts.first, len(new))
        ]
        words = f"{plural(len(nodes) - len(leaves), 'function')} and {plural(len(leaves), 'leaf', 'leaves')}"
        return replace(
            graph,
            notes=(
                *graph.notes,
                f"dashed: {words} are cut off at \u2702, so no gradient passes",
            ),
            nodes=(*graph.nodes, *nodes),
            edges=tuple(
                sorted(
                    (*graph.edges, *added),
                    key=lambda edge: (edge.consumer, edge.position),
                )
            ),
            leaves=(*graph.leaves, *leaves),
            roots=tuple(
                root._replace(node=new[ghosts.roots[i]]) if i in ghosts.roots else root
                for i, root in enumerate(graph.roots)
            ),
        )

    def _leaf(
        self,
        at: int,
        node: int,
        names: Names,
    ) -> Leaf:
        leaf, tensor = self._ghosts.leaves[at]
        if tensor is None:
            return leaf._replace(node=node)
        told = self._told.names.get(at)
        called = names.leaf(tensor) or ((told,) if told is not None else ())
        kind: Any = names.kind(tensor)
        return leaf._replace(node=node, names=called, kind=kind)

    def _node(self, at: int, node: int) -> Node:
        ghosts = self._ghosts
        record, scope, source = (
            ghosts.nodes[at - ghosts.first],
            self._scope_of[at],
            self._source_of[at],
        )
        if at in ghosts.users:
            given = (edge.producer for edge in ghosts.edges if edge.consumer == at)
            scopes = {self._scope_of[end] for end in (*given, *ghosts.users[at])}
            known = [scope for scope in scopes if scope is not None]
            together = (
                known and len(known) == len(scopes) and at not in ghosts.roots.values()
            )
            scope, source = (
                common(self._told.scopes, known) if together else None,
                ghosts.sources[at],
            )

        return record._replace(
            id=node,
            scope=scope,
            source=source,
            script_line=self._script_line_of[at],
            assigned=self._told.assigned.get(at, ""),
            flags=(*record.flags, "cut"),
        )


_BEHIND = 1_000_000  # positions of what comes back in: no op takes so many inputs


def _keys(
    part: CutPart,
) -> Iterator[tuple[_Key, torch.Tensor | None]]:
    """What tells each node of a part from all others, and the tensor of a leaf that is
    alive.
    """
    for node in part.graph.nodes:
        tensor = part.leaves[node.id]() if node.id in part.leaves else None
        if tensor is not None:
            yield ("leaf", id(tensor)), tensor
        else:
            yield (
                ("op", node.sequence if node.sequence is not None else -2 - node.id),
                None,
            )
