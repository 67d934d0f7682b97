"""A division of a graph's nodes into boxes, and the folded Graph that it makes.

Knows nothing of why nodes belong together: `fold` decides that. Here is what must
always hold: no node is lost, edges between boxes carry the count of the edges they
stand for, and the boxes form no cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gradviz.graph import (
    Base,
    Edge,
    Graph,
    Group,
    GroupKind,
    Node,
    Root,
    SavedTensor,
    TensorInfo,
    Uses,
    column,
)
from gradviz.graph.amounts import parameter_elements


class Part(NamedTuple):
    """One box of several nodes: what it is called, and which turns it has when it is a
    loop or a set of alike parts.
    """

    kind: GroupKind
    title: str
    count: int = 1  # type: ignore[assignment]
    scope: int | None = None  # the scope that the box lies in
    owns: bool = True  # whether parameters that only this box uses are drawn inside it
    op: int | None = None  # the op that the others are views of
    code: str = ""
    names_owner: bool = True  # whether the title names what has the parameters
    frozen: bool = False  # whether these require no gradient


class FirstCall(NamedTuple):
    """The first call of the module that a box calls again: its number, and its nodes."""

    call: int
    nodes: frozenset[int]


@dataclass
class Partition:
    """`order` has all nodes but leaves, each after those it uses, and those of one box
    together. `box_of[node]` is the box of each node; `parts` describes the boxes that
    are not single nodes.

    `turn_of[node]` is the turn of its loop, or of its set of alike parts, that a joined
    node belongs to. `earlier[box]` is the first call of a module that the box calls
    again: what both use is drawn with that one.
    """

    graph: Graph
    order: Sequence[int]
    box_of: list[int] = field(init=False)
    parts: dict[int, Part] = field(default_factory=dict)
    turn_of: dict[int, int] = field(default_factory=dict)
    earlier: dict[int, FirstCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.box_of = list(range(len(self.graph.nodes)))
        self._next = len(self.box_of)

    def join(self, nodes: Iterable[int], part: Part) -> int:
        """Put all these nodes into one new box."""
        box = self._next
        self._next += 1
        for node in nodes:
            self.box_of[node] = box
        self.parts[box] = part
        return box

    def members(self) -> dict[int, list[int]]:
        """Nodes by box, in order of id."""
        members: dict[int, list[int]] = {}
        for node, box in enumerate(self.box_of):
            members.setdefault(box, []).append(node)
        return members

    def absorb_parameters(self, *, shared: bool = False) -> None:
        """A parameter that only one box uses belongs to it. One that several use stays
        visible between them, or is drawn inside the first of them with `shared`, when
        that is a box that has parameters. Later calls of a module do not count.
        """
        first_of: dict[int, int] = {}
        for place, node in enumerate(self.order):
            first_of.setdefault(self.box_of[node], place)

        for leaf in self.graph.leaves:
            if leaf.kind != "parameter":
                continue
            users = {
                self.box_of[edge.consumer] for edge in self.graph.consumers(leaf.node)
            }
            first = min(users, key=lambda box: first_of.get(box, -1), default=-1)
            others = users - {first} - self.later_users(leaf.node)
            part = self.parts.get(first)
            # only what calls modules says that it has parameters
            if part is not None and part.owns and (shared or not others):
                # before all that use it, so that no box waits for itself
                self.box_of[leaf.node] = first

    def later_users(self, leaf: int) -> set[int]:
        """Boxes that use a leaf which is drawn with an earlier call of their module."""
        if not self.earlier:
            return set()
        consumers = {edge.consumer for edge in self.graph.consumers(leaf)}
        users = {self.box_of[consumer] for consumer in consumers} & self.earlier.keys()
        return {
            box for box in users if not self.earlier[box].nodes.isdisjoint(consumers)
        }

    def join_leaves(self, most: int) -> None:
        """Leave `most` leaves single, and put the rest into one box."""
        single = [
            leaf.node
            for leaf in self.graph.leaves
            if self.box_of[leaf.node] == leaf.node
        ]
        rest = single[most:]
        if len(rest) > 1:
            self.join(rest, Part("more", f"+{len(rest):,} more leaves"))

    def folded(self) -> Graph:
        """The graph of boxes. It remembers the graph it was folded from."""
        return _Folding(self).folded()


class _Folding:
    """Makes the graph of the boxes of a partition. `new` is the id that each old node
    has there, or the box around it.
    """

    def __init__(self, partition: Partition) -> None:
        graph = partition.graph
        self.partition, self.graph, self.box_of, self.parts = (
            partition,
            graph,
            partition.box_of,
            partition.parts,
        )
        self.held = graph.held
        self.elements = parameter_elements(graph)
        self.flags, self.outputs = (
            column(graph.nodes, "flags"),
            column(graph.nodes, "outputs"),
        )
        self.consumer_of, self.output_of = (
            column(graph.edges, "consumer"),
            column(graph.edges, "output"),
        )
        members = partition.members()
        number = {box: i for i, box in enumerate(members)}
        self.new = [number[box] for box in self.box_of]
        self.nodes: list[Node] = []
        for i, (box, inside) in enumerate(members.items()):
            if box in self.parts:
                self.nodes.append(self._group(i, box, inside))
            else:
                self.nodes.append(self._single(i, inside[0]))
        self.kinds = {
            node.id: _kinds(node) for node in self.nodes if node.group is not None
        }

    def folded(self) -> Graph:
        """The folded graph."""
        for (box, call), uses in self._shared().items():
            node = self.nodes[box]
            assert node.group is not None, "only boxes of several nodes are later calls"
            self.nodes[box] = node._replace(
                group=node.group._replace(same_as=call, shared=uses)
            )

        return replace(
            self.graph,
            nodes=tuple(self.nodes),
            edges=tuple(self._edges()),
            leaves=tuple(
                leaf._replace(node=self.new[leaf.node], base=self._moved(leaf.base))
                for leaf in self.graph.leaves
                if self._is_single(leaf.node)
            ),
            roots=tuple(map(self._root, self.graph.roots)),
            backward=(),  # its ids are those of the original, which keeps it
            marks=(),  # likewise
            original=self.graph,
        )

    def _is_single(self, node: int) -> bool:
        return self.box_of[node] not in self.parts

    def _single(self, i: int, node: int) -> Node:
        """A node that stays as it is, with its saved tensors pointing at the new ids of
        leaves that are still drawn.
        """
        record = self.graph.nodes[node]
        saved = tuple(map(self._slot, record.saved))
        return record._replace(id=i, saved=saved)

    def _slot(self, slot: SavedTensor) -> SavedTensor:
        if slot.leaf is None:
            return slot
        # a leaf that is drawn inside a box has no id of its own any more
        leaf = self.new[slot.leaf] if self._is_single(slot.leaf) else None
        return slot._replace(leaf=leaf)

    def _group(self, i: int, box: int, inside: list[int]) -> Node:
        part = self.parts[box]
        group = Group(
            kind=part.kind,
            title=part.title,
            nodes=tuple(inside),
            count=part.count,
            ops=sum(node not in self.graph.leaf_of for node in inside),
            parameters=sum(self.elements.get(node, 0) for node in inside),
            nbytes=sum(self.held[node] for node in inside),
            passed=self._passed(inside) if part.count > 1 else (),
            code=part.code,
            owns=part.names_owner,
            frozen=part.frozen,
        )
        # a box is cut off only when all in it is
        if any("cut" not in self.flags[node] for node in inside):
            part_off = {"cut"}
        else:
            part_off = set()

        flags = tuple(
            sorted({flag for node in inside for flag in self.flags[node]} - part_off)
        )
        if part.op is not None:
            # an op with its views: drawn as that op, with what the last view gives
            single = self._single(i, part.op)
            last = max(inside, key=lambda node: self.graph.nodes[node].sequence or 0)
            assigned = self.graph.nodes[last].assigned or single.assigned
            return single._replace(
                outputs=self._outputs(inside, box),
                flags=flags,
                group=group,
                assigned=assigned,
            )

        members = set(inside)
        names = tuple(root.name for root in self.graph.roots if root.node in members)
        return Node(
            i,
            part.title,
            self._outputs(inside, box),
            scope=part.scope,
            flags=flags,
            names=names,
            group=group,
        )

    def _passed(self, inside: list[int]) -> tuple[tuple[int, int], ...]:
        turn_of = self.partition.turn_of
        first, second = (
            [node for node in inside if turn_of.get(node) == turn] for turn in (0, 1)
        )
        # as their ops ran
        second.sort(key=lambda node: self.graph.nodes[node].sequence or 0)
        producers = set(first)
        passed: dict[tuple[int, int], None] = {}
        for node in second:
            for use in self.graph.inputs(node):
                if use.producer in producers:
                    passed[use.producer, use.output] = None
        return tuple(passed)

    def _outputs(self, inside: list[int], box: int) -> tuple[TensorInfo | None, ...]:
        """What leaves the box: outputs used by other boxes or given to the caller; each
        kind of tensor once.
        """
        kinds: dict[TensorInfo | None, None] = {}
        box_of, roots_of = self.box_of, self.graph.roots_of

        if any(node not in self.graph.leaf_of for node in inside):
            leaf_of = self.graph.leaf_of
        else:
            leaf_of = {}

        for node in inside:
            if node in leaf_of and node not in roots_of:
                continue  # a parameter that is drawn inside, and that others use, too
            places = self.graph.consumer_places(node)
            used = {
                self.output_of[place]
                for place in places
                if box_of[self.consumer_of[place]] != box
            }
            used |= {root.output for root in roots_of.get(node, ())}
            outputs = self.outputs[node]
            kinds.update(
                (outputs[output], None)
                for output in sorted(used)
                if output < len(outputs)
            )

        return tuple(kinds)

    def _place(self, node: int, output: int) -> int:
        """Which output of its box an output is: of a group, its kind of tensor in the
        order that the box lists them.
        """
        kinds = self.kinds.get(self.new[node])
        if kinds is None:
            return output
        if output < len(self.outputs[node]):
            return kinds.get(self.outputs[node][output], 0)
        return 0

    def _shared(self) -> dict[tuple[int, int], tuple[Uses, ...]]:
        """For each box of later calls, with the first call: what of its edges are uses
        of parameters drawn with that one.
        """
        shared: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
        for leaf in self.graph.leaves if self.partition.earlier else ():
            if leaf.kind == "parameter":
                later = self.partition.later_users(leaf.node) - {self.box_of[leaf.node]}
            else:
                later = set()
            for edge in self.graph.consumers(leaf.node) if later else ():
                box = self.box_of[edge.consumer]
                if box in later:
                    uses = shared.setdefault(
                        (self.new[edge.consumer], self.partition.earlier[box].call),
                        Counter(),
                    )
                    uses[self.new[leaf.node], self._place(leaf.node, 0)] += edge.count

        return {key: _uses(counts) for key, counts in shared.items()}

    def _edges(self) -> list[Edge]:
        """Edges between boxes, those of one kind of tensor as one; inside a box only
        those from one turn of a loop to another, as one edge to itself.
        """
        edges: list[Edge] = []
        # position of the first edge, and how many there are
        joined: dict[tuple[int, int, int], list[int]] = {}
        turns = {box for box, part in self.parts.items() if part.count > 1}

        for use, make, output, position, count in zip(
            *(column(self.graph.edges, name) for name in Edge._fields)
        ):
            consumer, producer = self.box_of[use], self.box_of[make]
            is_inside = consumer == producer
            if is_inside and (
                consumer not in turns or not self._between_turns(use, make)
            ):
                continue
            if consumer in self.parts or producer in self.parts:
                place = 0 if is_inside else self._place(make, output)
                joined.setdefault(
                    (self.new[use], self.new[make], place), [position, 0]
                )[1] += count
            else:
                edges.append(
                    Edge(self.new[use], self.new[make], output, position, count)
                )

        edges += [
            Edge(*key, position, count) for key, (position, count) in joined.items()
        ]
        edges.sort(
            key=lambda edge: (edge.consumer, edge.position, edge.producer, edge.output)
        )
        inputs = Counter[int]()

        # the inputs of what is in a box are numbered through
        for i, edge in enumerate(edges):
            if self.nodes[edge.consumer].group is not None:
                edges[i] = edge._replace(position=inputs[edge.consumer])
                inputs[edge.consumer] += 1

        return edges

    def _between_turns(self, use: int, make: int) -> bool:
        consumer, producer = (self.partition.turn_of.get(node) for node in (use, make))
        return consumer is not None and producer is not None and consumer != producer

    def _root(self, root: Root) -> Root:
        base = self._moved(root.base)
        if root.node is None:
            return root._replace(base=base)
        return root._replace(
            node=self.new[root.node],
            output=self._place(root.node, root.output),
            base=base,
        )

    def _moved(self, base: Base | None) -> Base | None:
        if base is None or base.node is None:
            return base
        return base._replace(
            node=self.new[base.node], output=self._place(base.node, base.output)
        )


def _kinds(node: Node) -> dict[TensorInfo | None, int]:
    """Kinds of tensors that leave a folded box. Of a segment, and of an op with views,
    they count as one.
    """
    as_one = node.group is not None and node.group.kind in ("chain", "op")
    return {info: 0 if as_one else place for place, info in enumerate(node.outputs)}


def _uses(counts: Mapping[tuple[int, int], int]) -> tuple[Uses, ...]:
    return tuple(Uses(*end, count) for end, count in sorted(counts.items()))
