"""A division of a graph's nodes into boxes, and the folded Graph that it makes.

Knows nothing of why nodes belong together: `fold` decides that. Here is what must always hold: no node is lost, edges between
boxes carry the count of the edges they stand for, and the boxes form no cycle.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gradviz.graph import (
    Base,
    Edge,
    Graph,
    Group,
    GroupKind,
    Leaf,
    Node,
    NodeFlag,
    Root,
    TensorInfo,
    Uses,
    column,
)
from gradviz.graph.amounts import forward_order, held_bytes, known_elements


class Part(NamedTuple):
    """One box of several nodes: what it is called, and which turns it has when it is a loop or a set of alike parts."""

    kind: GroupKind
    title: str
    count: int = 1  # type: ignore[assignment]
    scope: int | None = None  # the scope that the box lies in
    owns: bool = True  # whether parameters that only this box uses are drawn inside it


class Earlier(NamedTuple):
    """The first call of the module that a box calls again: its number, and its nodes."""

    call: int
    nodes: frozenset[int]


class _Facts(NamedTuple):
    """What `_group` reads of the nodes inside, by id: bytes held, elements of parameters, flags, outputs; and of all edges."""

    held: Sequence[int]
    sizes: dict[int, int]
    flags: Sequence[tuple[NodeFlag, ...]]
    outputs: Sequence[tuple[TensorInfo | None, ...]]
    consumer_of: Sequence[int]
    output_of: Sequence[int]


@dataclass
class Partition:
    """`box_of[node]` is the box of each node; `parts` describes the boxes that are not single nodes.

    `turn_of[node]` is the turn of its loop, or of its set of alike parts, that a joined node belongs to. `earlier[box]` is the
    first call of a module that the box calls again: what both use is drawn with that one.
    """

    graph: Graph
    box_of: list[int] = field(init=False)
    parts: dict[int, Part] = field(default_factory=dict)
    turn_of: dict[int, int] = field(default_factory=dict)
    earlier: dict[int, Earlier] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.box_of = list(range(len(self.graph.nodes)))
        self._next = len(self.box_of)

    def join(self, nodes: Iterable[int], part: Part) -> int:
        """Put all these nodes into one new box; boxes left empty are forgotten."""
        box = self._next
        self._next += 1
        for node in nodes:
            self.parts.pop(self.box_of[node], None)
            self.box_of[node] = box
        self.parts[box] = part
        return box

    def members(self) -> dict[int, list[int]]:
        """Nodes by box, in order of id."""
        found: dict[int, list[int]] = {}
        for node, box in enumerate(self.box_of):
            found.setdefault(box, []).append(node)
        return found

    def size(self) -> int:
        """How many boxes there are, leaves included."""
        return len(set(self.box_of))

    def absorb_parameters(self, *, shared: bool = False) -> None:
        """A parameter that only one box uses belongs to it. One that several use stays visible between them, or is drawn inside
        the first of them with `shared`, when that is a box that has parameters. Later calls of a module do not count.
        """
        order = self._order() if shared or self.earlier else {}
        for leaf in self.graph.leaves:
            if leaf.kind != "parameter":
                continue
            users = {self.box_of[edge.consumer] for edge in self.graph.consumers(leaf.node)}
            known = [box for box in users if box in order]  # boxes on a cycle have no place
            first = min(known, key=order.__getitem__) if len(users) > 1 and known else next(iter(users), -1)
            others = users - {first} - self._later_users(leaf.node)
            part = self.parts.get(first)
            if part is not None and part.owns and (shared or not others):
                self.box_of[leaf.node] = first  # before all that use it, so that no box waits for itself

    def _later_users(self, leaf: int) -> set[int]:
        """Boxes that use a leaf which is drawn with an earlier call of their module."""
        if not self.earlier:
            return set()
        consumers = {edge.consumer for edge in self.graph.consumers(leaf)}
        users = {self.box_of[consumer] for consumer in consumers} & self.earlier.keys()
        return {box for box in users if not self.earlier[box].nodes.isdisjoint(consumers)}

    def _order(self) -> dict[int, int]:
        """The place of each box in one order in which every box comes after those it uses, and else as they ran."""
        place: dict[int, int] = {}
        for i, node in enumerate(forward_order(self.graph)):
            place.setdefault(self.box_of[node], i)
        consumers: dict[int, list[int]] = {box: [] for box in place}
        waiting = dict.fromkeys(place, 0)
        ends = zip(column(self.graph.edges, "producer"), column(self.graph.edges, "consumer"))
        for producer, consumer in {(self.box_of[producer], self.box_of[consumer]) for producer, consumer in ends}:
            if producer != consumer:
                consumers[producer].append(consumer)
                waiting[consumer] += 1
        ready = [(at, box) for box, at in place.items() if not waiting[box]]
        heapq.heapify(ready)
        found: dict[int, int] = {}
        while ready:
            _, box = heapq.heappop(ready)
            found[box] = len(found)
            for consumer in consumers[box]:
                waiting[consumer] -= 1
                if not waiting[consumer]:
                    heapq.heappush(ready, (place[consumer], consumer))
        return found

    # -- the folded graph --------------------------------------------------------------------------------------------

    def folded(self) -> Graph:
        """The graph of boxes. It remembers the graph it was folded from."""
        members = self.members()
        number = {box: i for i, box in enumerate(members)}
        new = [number[box] for box in self.box_of]
        facts = _Facts(
            held_bytes(self.graph),
            {leaf.node: known_elements(leaf.tensor) for leaf in self.graph.leaves if leaf.kind == "parameter"},
            column(self.graph.nodes, "flags"),
            column(self.graph.nodes, "outputs"),
            column(self.graph.edges, "consumer"),
            column(self.graph.edges, "output"),
        )
        nodes = [
            self._group(i, box, inside, facts) if box in self.parts else self._single(i, inside[0], new)
            for i, (box, inside) in enumerate(members.items())
        ]
        left = _Left({node.id: _kinds(node) for node in nodes if node.group is not None}, new, facts.outputs)
        for (box, call), uses in self._shared(new, left).items():
            node = nodes[number[box]]
            assert node.group is not None, "only boxes of several nodes are later calls"
            nodes[number[box]] = node._replace(group=node.group._replace(same_as=call, shared=uses))
        return replace(
            self.graph,
            nodes=tuple(nodes),
            edges=tuple(self._edges(new, left)),
            leaves=tuple(self._leaf(leaf, new, left) for leaf in self.graph.leaves if self._is_single(leaf.node)),
            roots=tuple(self._root(root, new, left) for root in self.graph.roots),
            backward=(),  # its ids are those of the original, which keeps it
            marks=(),  # likewise
            original=self.graph,
        )

    def _is_single(self, node: int) -> bool:
        return self.box_of[node] not in self.parts

    def _single(self, i: int, node: int, new: Sequence[int]) -> Node:
        """A node that stays as it is, with its saved tensors pointing at the new ids of leaves that are still drawn."""
        record = self.graph.nodes[node]
        saved = tuple(
            one if one.leaf is None else one._replace(leaf=new[one.leaf] if self._is_single(one.leaf) else None)
            for one in record.saved
        )
        return record._replace(id=i, saved=saved)

    def _shared(self, new: Sequence[int], left: _Left) -> dict[tuple[int, int], tuple[Uses, ...]]:
        """For each box of later calls, with the first call: what of its edges are uses of parameters drawn with that one."""
        found: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
        for leaf in self.graph.leaves if self.earlier else ():
            later = self._later_users(leaf.node) - {self.box_of[leaf.node]} if leaf.kind == "parameter" else set()
            for edge in self.graph.consumers(leaf.node) if later else ():
                box = self.box_of[edge.consumer]
                if box in later:
                    uses = found.setdefault((box, self.earlier[box].call), Counter())
                    uses[new[leaf.node], left.place(leaf.node, 0)] += edge.count
        return {key: tuple(Uses(*end, count) for end, count in sorted(uses.items())) for key, uses in found.items()}

    def _group(self, i: int, box: int, inside: list[int], facts: _Facts) -> Node:
        part = self.parts[box]
        group = Group(
            kind=part.kind,
            title=part.title,
            nodes=tuple(inside),
            count=part.count,
            ops=sum(node not in self.graph.leaf_of for node in inside),
            parameters=sum(facts.sizes.get(node, 0) for node in inside),
            nbytes=sum(facts.held[node] for node in inside),
        )
        flags = sorted({flag for node in inside for flag in facts.flags[node]})
        here = set(inside)
        names = tuple(root.name for root in self.graph.roots if root.node in here)
        outputs = self._outputs(inside, box, facts)
        return Node(i, part.title, outputs, scope=part.scope, flags=tuple(flags), names=names, group=group)

    def _outputs(self, inside: list[int], box: int, facts: _Facts) -> tuple[TensorInfo | None, ...]:
        """What leaves the box: outputs used by other boxes or given to the caller; each kind of tensor once."""
        found: dict[TensorInfo | None, None] = {}
        box_of, roots_of = self.box_of, self.graph.roots_of
        leaf_of = self.graph.leaf_of if any(node not in self.graph.leaf_of for node in inside) else {}
        for node in inside:
            if node in leaf_of and node not in roots_of:
                continue  # a parameter that is drawn inside, and that others use, too
            places = self.graph.consumer_places(node)
            used = {facts.output_of[at] for at in places if box_of[facts.consumer_of[at]] != box}
            used |= {root.output for root in roots_of.get(node, ())}
            for output in sorted(used):
                if output < len(facts.outputs[node]):
                    found[facts.outputs[node][output]] = None
        return tuple(found)

    def _edges(self, new: Sequence[int], left: _Left) -> list[Edge]:
        """Edges between boxes, those of one kind of tensor as one; inside a box only those from one turn of a loop to another,
        as one edge to itself."""
        made: list[Edge] = []
        joined: dict[tuple[int, int, int], list[int]] = {}  # position of the first edge, and how many there are
        turns = {box for box, part in self.parts.items() if part.count > 1}
        for use, make, output, position, count in zip(*(column(self.graph.edges, name) for name in Edge._fields)):
            consumer, producer = self.box_of[use], self.box_of[make]
            if consumer == producer and (consumer not in turns or not self._between_turns(use, make)):
                continue
            if consumer in self.parts or producer in self.parts:
                place = 0 if consumer == producer else left.place(make, output)
                joined.setdefault((new[use], new[make], place), [position, 0])[1] += count
            else:
                made.append(Edge(new[use], new[make], output, position, count))
        made += [Edge(*key, position, count) for key, (position, count) in joined.items()]
        return sorted(made, key=lambda edge: (edge.consumer, edge.position, edge.producer, edge.output))

    def _between_turns(self, use: int, make: int) -> bool:
        consumer, producer = self.turn_of.get(use), self.turn_of.get(make)
        return consumer is not None and producer is not None and consumer != producer

    def _leaf(self, leaf: Leaf, new: Sequence[int], left: _Left) -> Leaf:
        return leaf._replace(node=new[leaf.node], base=_moved(leaf.base, new, left))

    def _root(self, root: Root, new: Sequence[int], left: _Left) -> Root:
        output = root.output if root.node is None else left.place(root.node, root.output)
        return root._replace(
            node=None if root.node is None else new[root.node], output=output, base=_moved(root.base, new, left)
        )


class _Left(NamedTuple):
    """Which output of a box a tensor is that leaves it: of a group, its kind of tensor in the order that the box lists them."""

    kinds: dict[int, dict[TensorInfo | None, int]]  # by group
    new: Sequence[int]
    outputs: Sequence[tuple[TensorInfo | None, ...]]

    def place(self, node: int, output: int) -> int:
        kinds = self.kinds.get(self.new[node])
        if kinds is None:
            return output
        return kinds.get(self.outputs[node][output], 0) if output < len(self.outputs[node]) else 0


def _kinds(node: Node) -> dict[TensorInfo | None, int]:
    """Kinds of tensors that leave a folded box. Of a stretch they count as one: between stretches they are many and say little."""
    one = node.group is not None and node.group.kind == "chain"
    return {info: 0 if one else place for place, info in enumerate(node.outputs)}


def _moved(base: Base | None, new: Sequence[int], left: _Left) -> Base | None:
    if base is None or base.node is None:
        return base
    return base._replace(node=new[base.node], output=left.place(base.node, base.output))


# -- cycles ------------------------------------------------------------------------------------------------------------


def cycles(count: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Sets of at least two boxes that lie on a cycle together (strongly connected components), iteratively.

    Source: R. Tarjan, "Depth-first search and linear graph algorithms", 1972; Pearce's form with explicit stacks.
    """
    successors: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        if source != target:
            successors[source].append(target)
    index = [0] * count  # 0: not seen yet
    lowest = [0] * count
    done = bytearray(count)
    open_boxes: list[int] = []
    found: list[list[int]] = []
    clock = 0
    for start in range(count):
        if index[start]:
            continue
        work = [(start, 0)]
        while work:
            box, i = work.pop()
            if i == 0:
                clock += 1
                index[box] = lowest[box] = clock
                open_boxes.append(box)
            descended = False
            for j in range(i, len(successors[box])):
                target = successors[box][j]
                if not index[target]:
                    work.append((box, j + 1))
                    work.append((target, 0))
                    descended = True
                    break
                if not done[target]:
                    lowest[box] = min(lowest[box], index[target])
            if descended:
                continue
            if lowest[box] == index[box]:
                component = []
                while True:
                    top = open_boxes.pop()
                    done[top] = 1
                    component.append(top)
                    if top == box:
                        break
                if len(component) > 1:
                    found.append(sorted(component))
            elif work:
                parent = work[-1][0]
                lowest[parent] = min(lowest[parent], lowest[box])
    return found
