"""Which module calls have the same structure, proven node by node and never by name.

Two calls are alike when their nodes, taken in the order they ran, have equal ops, output shapes and dtypes, equal places
among the inner modules, and the same wiring: every input comes from the node at the same place inside the call, from a
parameter of the same shape, or from outside.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gradviz.fold.partition import Partition, cycles
from gradviz.graph import Graph, column
from gradviz.graph.scopes import ScopeTree

LEAST = 3
"""How many alike modules are worth joining: two are easier to read side by side."""


def structure(graph: Graph, tree: ScopeTree, scope: int) -> Hashable:
    """What makes a call alike another: equal values mean equal structure."""
    members = tree.members[scope]
    place = {node: i for i, node in enumerate(members)}
    return tuple(_node(graph, tree, scope, node, place) for node in members)


def _node(graph: Graph, tree: ScopeTree, scope: int, node: int, place: dict[int, int]) -> Hashable:
    record = graph.nodes[node]
    wiring = tuple(_input(graph, edge.producer, edge.output, edge.position, place) for edge in graph.inputs(node))
    return record.op, record.outputs, tree.relative(record.scope, scope), wiring


def _input(graph: Graph, producer: int, output: int, position: int, place: dict[int, int]) -> Hashable:
    inside = place.get(producer)
    if inside is not None:
        return inside, output, position
    leaf = graph.leaf_of.get(producer)
    return ("leaf", leaf.tensor, position) if leaf is not None else ("outside", position)


def alike_siblings(graph: Graph, tree: ScopeTree, siblings: Sequence[int]) -> list[list[int]]:
    """Sets of at least `LEAST` calls among `siblings` that are alike and of different modules, in order of their first nodes.

    A cheap comparison comes first, so that the proof is made only for calls that could be alike.
    """
    likely: dict[Hashable, list[int]] = {}
    for scope in siblings:
        if tree.members[scope]:
            likely.setdefault((tree.scopes[scope].type, len(tree.members[scope])), []).append(scope)
    found: list[list[int]] = []
    for candidates in likely.values():
        if len({tree.scopes[scope].path for scope in candidates}) >= LEAST:
            proven: dict[Hashable, list[int]] = {}
            for scope in candidates:
                proven.setdefault(structure(graph, tree, scope), []).append(scope)
            found.extend(same for same in proven.values() if len(same) >= LEAST)
    return found


# Equal ops that follow one another in equal branches: thirty times select, neg and mul are thirty branches of three
# ops. Knows only which sets of equal ops there are; `join` finds those.

TRIES = 20
"""Steps that are tried one by one where all of them together would close a cycle."""


class Branches(NamedTuple):
    """Sets of equal ops, one op of each in every branch, and the branch of each op."""

    roles: list[int]
    turn_of: dict[int, int]


def branches(partition: Partition, alike: Mapping[int, Sequence[int]]) -> list[Branches]:
    """Sets of `alike` ops, by role, joined where each op of one set feeds one op of the next and no box would wait for itself."""
    steps = list(_steps(partition.graph, alike))
    chosen = steps
    if _is_tangled(partition, alike, _joined(alike, steps).group):
        chosen = []
        for step in steps[:TRIES]:
            if not _is_tangled(partition, alike, _joined(alike, [*chosen, step]).group):
                chosen.append(step)
    group, turn_of = _joined(alike, chosen)
    found: dict[int, list[int]] = {}
    for role, its in group.items():
        found.setdefault(its, []).append(role)
    return [Branches(roles, turn_of) for roles in found.values()]


class _Step(NamedTuple):
    """Two roles of which each op of the first feeds exactly one of the second, and those pairs of ops."""

    first: int
    second: int
    pairs: list[tuple[int, int]]


class _Joined(NamedTuple):
    """The set that each role is in, and the branch of each op."""

    group: dict[int, int]
    turn_of: dict[int, int]


def _joined(alike: Mapping[int, Sequence[int]], steps: Iterable[_Step]) -> _Joined:
    group = {role: role for role in alike}
    turn_of = {node: i for nodes in alike.values() for i, node in enumerate(nodes)}
    for first, second, pairs in steps:
        kept, moved = group[first], group[second]
        if kept != moved:
            turn = {turn_of[consumer]: turn_of[producer] for producer, consumer in pairs}
            for role in [role for role, its in group.items() if its == moved]:
                group[role] = kept
                turn_of.update({node: turn[turn_of[node]] for node in alike[role]})
    return _Joined(group, turn_of)


def _steps(graph: Graph, alike: Mapping[int, Sequence[int]]) -> Iterator[_Step]:
    role_of = {node: role for role, nodes in alike.items() for node in nodes}
    pairs: dict[tuple[int, int], dict[tuple[int, int], None]] = {}
    for producer, consumer in zip(column(graph.edges, "producer"), column(graph.edges, "consumer")):
        if producer in role_of and consumer in role_of:
            pairs.setdefault((role_of[producer], role_of[consumer]), {})[producer, consumer] = None
    scopes = column(graph.nodes, "scope")
    for (first, second), found in pairs.items():
        one_each = len({one for one, _ in found}) == len({other for _, other in found}) == len(found)
        same = scopes[alike[first][0]] == scopes[alike[second][0]]
        if same and one_each and len(found) == len(alike[first]) == len(alike[second]):
            yield _Step(first, second, list(found))


def _is_tangled(partition: Partition, alike: Mapping[int, Sequence[int]], group: Mapping[int, int]) -> bool:
    """Whether a set of several roles would lie on a cycle if it were one box."""
    several = {its for its in group.values() if sum(other == its for other in group.values()) > 1}
    group_of = {node: -1 - group[role] for role, nodes in alike.items() for node in nodes}
    number: dict[int, int] = {}
    ends: list[tuple[int, int]] = []
    for producer, consumer in zip(*(column(partition.graph.edges, name) for name in ("producer", "consumer"))):
        pair = [group_of.get(node, partition.box_of[node]) for node in (producer, consumer)]
        one, other = (number.setdefault(box, len(number)) for box in pair)
        ends.append((one, other))
    boxes = list(number)
    return any(-1 - boxes[i] in several for loop in cycles(len(number), ends) for i in loop if boxes[i] < 0)
