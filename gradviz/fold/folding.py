"""A graph folded: boxes for what is closed of its tree of groups, and edges between them.

Every drawing reads this one record, of a graph that nothing is closed of, too. What must
always hold: each node is in one box, edges between boxes carry the count of the edges
they stand for, and boxes form no cycle other than one with itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from gradviz.fold.groups import Groups, Section
from gradviz.fold.titles import (
    group_of,
    names_calls,
    op_of,
    scopes_in,
    title,
    turns_beside,
    turns_of,
)
from gradviz.graph import Edge, Graph, Group, Leaf, Node, Root, TensorInfo, column
from gradviz.graph.amounts import parameter_elements
from gradviz.graph.model import Wired
from gradviz.graph.walks import users

if TYPE_CHECKING:
    from gradviz.fold.opening import Opening

Ends = tuple[int, int, int]
"""Consumer, producer and output of an edge."""


@dataclass(frozen=True, eq=False)
class Folding(Wired):
    """Box i is drawn as `boxes[i]` and holds the nodes `inside[i]`, whose `box_of` it
    is. Edges join boxes; leaves, outputs and all else keep the numbers of nodes that
    `graph` has.

    `graph` is the `recorded` one with a scope for what the program wrote. `opening` says
    what is open, None where nothing was closed. Of the edges `shared` tells how many are
    uses of parameters that are drawn with an earlier call of the module, or in another
    closed box; `together` parameters of several boxes are drawn with the first of these.
    """

    recorded: Graph
    graph: Graph
    boxes: Sequence[Node]
    box_of: Sequence[int]
    edges: Sequence[Edge]
    opening: Opening | None = None
    shared: Mapping[Ends, int] = field(default_factory=dict)
    together: int = 0

    @property
    def size(self) -> int:
        """How many boxes there are."""
        return len(self.boxes)

    @cached_property
    def inside(self) -> Sequence[tuple[int, ...]]:
        """The nodes of each box."""
        if isinstance(self.box_of, range):
            return list(zip(self.box_of))
        inside: list[list[int]] = [[] for _ in self.boxes]
        for node, box in enumerate(self.box_of):
            inside[box].append(node)
        return list(map(tuple, inside))

    @cached_property
    def leaf_in(self) -> Mapping[int, Leaf]:
        """The leaves that are boxes of their own, by box."""
        if self.opening is None:
            return self.graph.leaf_of
        leaves = {self.box_of[leaf.node]: leaf for leaf in self.graph.leaves}
        return {box: leaf for box, leaf in leaves.items() if not self.boxes[box].group}

    @cached_property
    def roots_of(self) -> Mapping[int, Sequence[Root]]:
        """The outputs that each box gives."""
        roots: dict[int, list[Root]] = {}
        for root in self.graph.roots:
            if root.node is not None:
                roots.setdefault(self.box_of[root.node], []).append(root)
        return roots

    @cached_property
    def groups(self) -> Sequence[Group]:
        """What boxes of several nodes stand for; ops with their views are none."""
        groups = (group for group in column(self.boxes, "group") if group is not None)
        return [group for group in groups if group.kind != "op"]

    def output(self, node: int, output: int) -> int:
        """Which output of its box an output of a node is."""
        box = self.boxes[self.box_of[node]]
        return _output_of(box, self.graph.outputs[node], output)

    def nodes_in(self, box: int) -> Sequence[Node]:
        """The nodes of a box."""
        return [self.graph.nodes[node] for node in self.inside[box]]


def _output_of(box: Node, outputs: Sequence[TensorInfo | None], output: int) -> int:
    """Which output of its box an output of a node is: of a closed group, its kind of
    tensor in the order that the box lists them. Of a segment, and of an op with its
    views, they count as one.
    """
    if box.group is None:
        return output
    is_one = box.group.kind in ("chain", "op") or output >= len(outputs)
    if is_one or outputs[output] not in box.outputs:
        return 0
    return box.outputs.index(outputs[output])


def taken(
    graph: Graph, users: Iterable[int], makers: Container[int]
) -> list[tuple[int, int]]:
    """What some nodes take from others, as their ops ran: nodes and their outputs."""
    every = (use for user in users for use in graph.inputs(user))
    uses = [use for use in every if use.producer in makers]
    uses.sort(key=lambda use: graph.nodes[use.consumer].sequence or 0)
    return list(dict.fromkeys((use.producer, use.output) for use in uses))


def unfolded(graph: Graph) -> Folding:
    """All of a graph, every node as a box."""
    groups = enumerate(column(graph.nodes, "group"))
    # a graph that was folded in another process has its parameters drawn elsewhere, too
    shared = {
        (box, uses.node, uses.output): uses.count
        for box, group in groups
        for uses in (() if group is None else group.shared)
    }
    alone = range(len(graph.nodes))
    return Folding(graph, graph, graph.nodes, alone, graph.edges, shared=shared)


def folding_of(graph: Graph) -> Folding:
    """How a graph is to be drawn: as it was folded, else every node as a box."""
    folding: Folding | None = graph.folding
    return unfolded(graph) if folding is None else folding


def folded(opening: Opening, *, leaves: int | None = None) -> Folding:
    """Fold what is closed of a graph. With `leaves`, so many leaves are single, and
    parameters that several boxes use are drawn inside the first.
    """
    homes = _Homes(opening)
    homes.absorb_parameters(most=SHARED if leaves is None else 0)
    if leaves is not None:
        homes.join_leaves(leaves)
    return _Folder(homes).folding()


class _FirstCall(NamedTuple):
    """The first call of the module that a box calls again: its number, its nodes."""

    call: int
    nodes: frozenset[int]


Home = int | Section
"""What a box is made of: one node, a closed group, or the leaves that are too many."""
SHARED = 6
"""So many parameters that several boxes use stand between them."""
REST = -1
"""The home of these leaves."""


class _Homes:
    """Decides what box each node goes to: `home[node]` is its own number, the closed
    group that it is in, or `REST`.

    `earlier[group]` is the first call of a module that a box calls again: what both use
    is drawn with that one.
    """

    def __init__(self, opening: Opening) -> None:
        self.opening, self.graph = opening, opening.groups.graph
        self.home: list[Home] = list(range(len(self.graph.nodes)))
        first = _first_calls(opening.groups)
        self.earlier: dict[Home, _FirstCall] = {}
        # parameters that are drawn with the first of several users, with the others
        self.together: dict[int, set[Home]] = {}
        for group in opening.closed():
            for node in opening.nodes(group):
                self.home[node] = group
            call = _first_call(group, first, opening)
            if call is not None:
                self.earlier[group] = call

    def absorb_parameters(self, *, most: int) -> None:
        """A parameter that only one box uses belongs to it. `most` that several use stay
        visible between them; more are drawn inside the first of them, when that is a box
        that has parameters. Later calls of a module do not count.
        """
        between: dict[int, tuple[Home, set[Home]]] = {}
        owners: set[Home] = {one for one in self.opening.closed() if _owns(one)}
        for leaf in self.graph.leaves:
            if leaf.kind != "parameter":
                continue
            homes = {self.home[user] for user in users(self.graph, leaf.node)}
            first = min(homes, key=self.opening.sizes.span, default=REST)
            others = homes - {first} - self.later_users(leaf.node)
            # before all that use it, so that no box waits for itself
            if first in owners and not _is_given(first, leaf):
                if others:
                    between[leaf.node] = first, others
                else:
                    self.home[leaf.node] = first
        if len(between) > most:
            for node, (home, others) in between.items():
                self.home[node] = home
                self.together[node] = others

    def later_users(self, leaf: int) -> set[Home]:
        """Boxes that use a leaf which is drawn with an earlier call of their module."""
        if not self.earlier:
            return set()
        consumers = set(users(self.graph, leaf))
        homes = {self.home[consumer] for consumer in consumers} & self.earlier.keys()
        return {box for box in homes if self.earlier[box].nodes & consumers}

    def sharers(self, leaf: int) -> set[Home]:
        """Boxes that say that they use a leaf which is drawn elsewhere: no edge tells it."""
        closed = filter(_says_more, self.together.get(leaf, ()))
        later = self.later_users(leaf)
        if not isinstance(self.home[leaf], Section):
            later = {box for box in later if self.names_earlier(box)}
        return {*closed, *later} - {self.home[leaf]}

    def names_earlier(self, home: Home) -> bool:
        """Whether the title of a box says what it calls again, or which turns it is of."""
        if not isinstance(home, Section):
            return False
        return home in self.earlier and (names_calls(home) or bool(turns_beside(home)))

    def parameters(self, nodes: Iterable[int]) -> set[int]:
        """The parameters that some nodes use."""
        elements = self.graph.fact(parameter_elements)
        used = {edge.producer for node in nodes for edge in self.graph.inputs(node)}
        return used & elements.keys()

    def join_leaves(self, most: int) -> None:
        """Leave `most` leaves single, and put the rest into one box."""
        leaves = self.graph.leaves
        single = [leaf.node for leaf in leaves if self.home[leaf.node] == leaf.node]
        if len(single) > most + 1:
            for node in single[most:]:
                self.home[node] = REST


class _Folder:
    """Makes the boxes of what was decided, in the order of their first nodes, and the
    edges between them.
    """

    def __init__(self, homes: _Homes) -> None:
        self.homes, self.graph = homes, homes.graph
        number: dict[Home, int] = {}
        self.box_of = [number.setdefault(home, len(number)) for home in homes.home]
        inside: list[list[int]] = [[] for _ in number]
        for node, box in enumerate(self.box_of):
            inside[box].append(node)
        self.inside = dict(zip(number, inside))
        self.elements = self.graph.fact(parameter_elements)
        # by parameter: the boxes that use it again, with what an earlier call has
        self.later: dict[int, set[int]] = {}
        for leaf in self.elements if homes.earlier or homes.together else ():
            self.later[leaf] = {number[home] for home in homes.sharers(leaf)}
        self.again = set[int]().union(*self.later.values())
        self.shared = Counter[Ends]()
        # the turn that each node is in, by box of a loop
        self.turns = {
            number[home]: turns_of(home)
            for home in self.inside
            if isinstance(home, Section) and home.turns > 1
        }

    def folding(self) -> Folding:
        """All of it as one record."""
        homes = self.homes
        boxes = [self._box(home, nodes) for home, nodes in self.inside.items()]
        return Folding(
            homes.opening.groups.recorded,
            self.graph,
            tuple(boxes),
            self.box_of,
            self._edges(boxes),
            homes.opening,
            self.shared,
            len(homes.together),
        )

    # -- boxes -------------------------------------------------------------------------

    def _box(self, home: Home, nodes: list[int]) -> Node:
        """What a box is drawn as: a node alone as it is."""
        if isinstance(home, int) and home != REST:
            return self.graph.nodes[home]
        # most boxes are the same in the next view
        drawn = self.homes.opening.drawn
        shares = self._shares(home, nodes)
        key = home, *nodes, shares
        if key not in drawn:
            drawn[key] = self._closed_box(home, nodes, *shares)
        return drawn[key]

    def _shares(self, home: Home, nodes: list[int]) -> tuple[int | None, str]:
        """The call of the same module or function that has the same parameters, else what
        has some of them.
        """
        box, homes = self.box_of[nodes[0]], self.homes
        if box not in self.again or not isinstance(home, Section):
            return None, ""
        used = homes.parameters(nodes)
        earlier = homes.earlier.get(home)
        if earlier is not None and names_calls(home):
            if used == homes.parameters(earlier.nodes):
                return earlier.call, ""
            return None, f"call {earlier.call:,}"

        for turn in turns_beside(home):
            if used & homes.parameters(turn.nodes):
                return None, title(turn)

        leaves = [leaf for leaf in used if box in self.later.get(leaf, ())]
        holders = {homes.home[leaf] for leaf in leaves}
        titles = [title(holder) for holder in holders if isinstance(holder, Section)]
        if len(titles) == 1:
            return None, titles[0]
        return None, f"{len(titles)} boxes"

    def _closed_box(
        self, home: Home, nodes: list[int], same_as: int | None, shares: str
    ) -> Node:
        """What a box of several nodes is drawn as."""
        graph = self.graph
        group = self._group(home, nodes)._replace(same_as=same_as, shares=shares)
        flags = {flag for node in nodes for flag in graph.flags[node]}
        # a box is cut off only when all in it is
        if any("cut" not in graph.flags[node] for node in nodes):
            flags.discard("cut")
        if isinstance(home, Section) and home.op is not None:
            box = op_of(home)
        else:
            members = set(nodes)
            names = tuple(root.name for root in graph.roots if root.node in members)
            around = home.parent if isinstance(home, Section) else None
            scope = around.scope_around if around is not None else None
            box = Node(nodes[0], group.title, scope=scope, names=names)
        return box._replace(
            outputs=self._outputs(nodes), flags=tuple(sorted(flags)), group=group
        )

    def _group(self, home: Home, nodes: list[int]) -> Group:
        """What a box of several nodes stands for."""
        graph = self.graph
        if isinstance(home, Section):
            group = self._closed(home, nodes)
        else:
            group = Group("more", f"+{len(nodes):,} more leaves", ())
        return group._replace(
            nodes=tuple(nodes),
            ops=sum(node not in graph.leaf_of for node in nodes),
            parameters=sum(self.elements.get(node, 0) for node in nodes),
            outside=sum(self._outside(home, nodes)),
            nbytes=sum(graph.held[node] for node in nodes),
        )

    def _outside(self, home: Home, nodes: list[int]) -> list[int]:
        """Elements of parameters of a closed module call that are drawn outside."""
        record = home.record if isinstance(home, Section) else None
        if record is None or record.kind != "module":
            return []
        own, leaf_of = f"{record.path}.", self.graph.leaf_of
        taken = {edge.producer for node in nodes for edge in self.graph.inputs(node)}
        leaves = [leaf_of[node] for node in taken - {*nodes} if node in self.elements]
        return [
            self.elements[leaf.node]
            for leaf in leaves
            if any(name.startswith(own) for name in leaf.names)
        ]

    def _closed(self, home: Section, nodes: list[int]) -> Group:
        """What is known of a closed group."""
        group, box = group_of(home), self.box_of[nodes[0]]
        if box in self.turns:
            group = group._replace(passed=self._passed(self.turns[box], nodes))
        return group

    def _passed(
        self, turn_of: dict[int, int], nodes: list[int]
    ) -> tuple[tuple[int, int], ...]:
        """What the second turn of a loop takes from the first."""
        first = {node for node in nodes if turn_of.get(node) == 0}
        second = [node for node in nodes if turn_of.get(node) == 1]
        return tuple(taken(self.graph, second, first))

    def _outputs(self, nodes: list[int]) -> tuple[TensorInfo | None, ...]:
        """What leaves the box: outputs used by other boxes or given to the caller; each
        kind of tensor once.
        """
        graph, box_of, box = self.graph, self.box_of, self.box_of[nodes[0]]
        makers = [node for node in nodes if node not in graph.leaf_of]
        # a parameter that is drawn inside, and that others use, too, is no output
        inner = [
            node
            for node in nodes
            if node not in graph.leaf_of or node in graph.roots_of
        ]
        kinds: dict[TensorInfo | None, None] = {}
        for node in inner if makers else nodes:
            edges = graph.consumers(node)
            used = {edge.output for edge in edges if box_of[edge.consumer] != box}
            used |= {root.output for root in graph.roots_of.get(node, ())}
            outputs = graph.outputs[node]
            kinds |= {outputs[i]: None for i in sorted(used) if i < len(outputs)}
        return tuple(kinds)

    # -- edges -------------------------------------------------------------------------

    def _edges(self, boxes: Sequence[Node]) -> tuple[Edge, ...]:
        """Edges between boxes, those of one kind of tensor as one; inside a box only
        those from one turn of a loop to another, as one edge to itself.
        """
        edges = list[Edge]()
        # position of the first edge, and how many there are
        joined: dict[Ends, list[int]] = {}
        for use, make, output, position, count in self.graph.edges:
            consumer, producer = self.box_of[use], self.box_of[make]
            if consumer == producer:
                if consumer in self.turns and self._between_turns(consumer, use, make):
                    key = consumer, producer, 0
                    joined.setdefault(key, [position, 0])[1] += count
            elif boxes[consumer].group or boxes[producer].group:
                outputs = self.graph.outputs[make]
                of_box = _output_of(boxes[producer], outputs, output)
                key = consumer, producer, of_box
                joined.setdefault(key, [position, 0])[1] += count
                if consumer in self.later.get(make, ()):
                    self.shared[key] += count
            else:
                edges.append(Edge(consumer, producer, output, position, count))

        edges += [
            Edge(*key, *place_and_count) for key, place_and_count in joined.items()
        ]
        edges.sort(key=itemgetter(0, 3, 1, 2))
        inputs = Counter[int]()
        # the inputs of what is in a box are numbered through
        for i, edge in enumerate(edges):
            if boxes[edge.consumer].group is not None:
                edges[i] = edge._replace(position=inputs[edge.consumer])
                inputs[edge.consumer] += 1
        return tuple(edges)

    def _between_turns(self, box: int, use: int, make: int) -> bool:
        turn_of = self.turns[box]
        turns = turn_of.get(use), turn_of.get(make)
        return None not in turns and turns[0] != turns[1]


def _is_given(home: Home, leaf: Leaf) -> bool:
    """Whether a closed call of a module takes a parameter of a module around it."""
    record = home.record if isinstance(home, Section) else None
    if record is None or not record.type:
        return False
    outer = record.path.rpartition(".")[0]
    return bool(outer and leaf.names) and all(
        name.startswith(f"{outer}.") and not name.startswith(f"{record.path}.")
        for name in leaf.names
    )


def _says_more(home: Home) -> bool:
    """Whether a box has room to say whose parameters it uses."""
    return isinstance(home, Section) and home.op is None


def _owns(group: Section) -> bool:
    """Whether parameters that only a box uses are drawn inside: only what calls
    modules says that it has some.
    """
    return group.kind in ("call", "segment") or bool(scopes_in(group))


def _first_calls(groups: Groups) -> dict[str, Section]:
    """The group of the first call of each module."""
    first: dict[str, Section] = {}
    for group in groups:
        if group.record is not None:
            first.setdefault(group.record.path, group)
    return first


def _first_call(
    group: Section, first: Mapping[str, Section], opening: Opening
) -> _FirstCall | None:
    scopes = scopes_in(group)
    # of the modules that it calls, else of its functions
    called = [scope for scope in scopes if scope.type] or scopes
    earliest = {first[scope.path] for scope in called if scope.path in first}
    nodes = frozenset(chain.from_iterable(map(opening.nodes, earliest)))
    # else it is the first call, or a part of it
    if not nodes or not nodes.isdisjoint(opening.nodes(group)):
        return None
    records = [call.record for call in earliest]
    return _FirstCall(min(scope.call for scope in records if scope is not None), nodes)
