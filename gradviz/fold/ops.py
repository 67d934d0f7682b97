"""Joins ops that no closed call holds: what a loop ran again and again, equal branches, and pieces of what is still too tall.

Thirty times select, neg and mul are thirty branches of three ops. What lies on a cycle because of joining is one loop. A long
script of plain functions repeats nothing, nor does a module with a thousand ops of its own: these are cut into segments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from gradviz.fold.calls import turns_of
from gradviz.fold.partition import Part, Partition, cycles, in_order
from gradviz.graph import Edge, Graph, column
from gradviz.graph.origins import ScopeTree

LEAST_OPS = 8
"""Single ops are joined only when a loop ran them this often: fewer are easier to read one by one."""


def join_ops(partition: Partition) -> None:
    """Join ops outside closed modules that a loop ran many times: same op, shape, place in the code, and neighbours.

    The first and last turns of a loop have other neighbours. Their nodes on the cycle of the loop join it too, as long
    as it is little beside the rest.
    """
    roles: dict[int, list[int]] = {}
    for node, role in _roles(partition).items():
        roles.setdefault(role, []).append(node)
    repeated = {role: nodes for role, nodes in roles.items() if len(nodes) >= LEAST_OPS}
    while repeated:
        role_at = {nodes[0]: role for role, nodes in repeated.items()}
        stand_in = {node: nodes[0] for nodes in repeated.values() for node in nodes}
        loops = [
            _Loop([role_at[box] for box in boxes if box in role_at], [box for box in boxes if box not in role_at])
            for boxes in cycles(partition.edges(stand_in))
        ]
        loops = [loop for loop in loops if loop.roles]  # joining made no other cycle
        irregular = {role for loop in loops if not _is_even(partition, loop, repeated) for role in loop.roles}
        if not irregular:
            _join_roles(partition, repeated, loops)
            return
        repeated = {role: nodes for role, nodes in repeated.items() if role not in irregular}


class _Loop(NamedTuple):
    """What lies on one cycle: ops that repeat, by role, and boxes besides."""

    roles: list[int]
    others: list[int]


def _is_even(partition: Partition, loop: _Loop, repeated: dict[int, list[int]]) -> bool:
    """Whether nearly everything on the loop repeats, each about as often, and no closed box is in the way."""
    if any(box in partition.parts for box in loop.others):
        return False
    counts = [len(repeated[role]) for role in loop.roles]
    return min(counts) * 10 >= max(counts) * 8 and len(loop.others) * 4 <= sum(counts)


def _join_roles(partition: Partition, repeated: dict[int, list[int]], loops: Sequence[_Loop]) -> None:
    graph = partition.graph
    producers, sequences = column(graph.edges, "producer"), column(graph.nodes, "sequence")

    def ops_of(roles: Sequence[int]) -> list[str]:
        """The op of each role in the order they ran first."""
        first = sorted(roles, key=lambda role: min(sequences[node] or 0 for node in repeated[role]))
        return [graph.nodes[repeated[role][0]].op for role in first]

    def feeds_itself(nodes: Sequence[int]) -> bool:
        inside = set(nodes)
        return any(producers[place] in inside for node in nodes for place in graph.input_places(node))

    looped = {role for loop in loops for role in loop.roles}
    for loop in loops:
        nodes = [node for role in loop.roles for node in repeated[role]]
        turns = min(len(repeated[role]) for role in loop.roles)
        partition.turn_of.update(turns_of(graph, nodes, turns))
        # the ops of one turn, `MulBackward0 → AddBackward0`; only how many there are when they are many
        title = f"{len(loop.roles)} ops" if len(loop.roles) > 3 else " → ".join(ops_of(loop.roles))
        partition.join([*nodes, *loop.others], Part("loop", title, turns, graph.nodes[nodes[0]].scope, owns=False))
    chained = {role for role, nodes in repeated.items() if role not in looped and feeds_itself(nodes)}
    for role in chained:
        nodes, first = repeated[role], graph.nodes[repeated[role][0]]
        partition.turn_of.update({node: i for i, node in enumerate(nodes)})
        partition.join(nodes, Part("chain", first.op, len(nodes), first.scope, owns=False))
    alike = {role: nodes for role, nodes in repeated.items() if role not in looped and role not in chained}
    joined, turn_of = _branches(partition, alike)
    for its_roles in joined:
        nodes = [node for role in its_roles for node in repeated[role]]
        partition.turn_of.update({node: turn_of[node] for node in nodes})
        # the ops of one branch, only the first and the last where there are more: `SelectBackward0 … MulBackward0`
        ops = ops_of(its_roles)
        title = f"{ops[0]} … {ops[-1]}" if len(ops) > 2 else " → ".join(ops)
        turns, scope = len(repeated[its_roles[0]]), graph.nodes[nodes[0]].scope
        partition.join(nodes, Part("alike", title, turns, scope, owns=False))


def _roles(partition: Partition) -> dict[int, int]:
    """A number for each single op, equal for ops in equal surroundings: two rounds of colour refinement.

    A parameter that many ops use is itself, so a step of a recurrent net is known by its weights; any other leaf is only its shape.
    Which of the many inputs of a `cat`, or of the many outputs of an `unbind`, an op has does not tell it from others.
    """
    graph = partition.graph
    colors: dict[Hashable, int] = {}

    def color(key: Hashable) -> int:
        return colors.setdefault(key, len(colors))

    now = []
    single = []
    made = column(graph.nodes, "outputs")
    described = zip(*(column(graph.nodes, name) for name in ("op", "outputs", "scope", "source")))
    for i, (op, outputs, scope, source) in enumerate(described):
        leaf = graph.leaf_of.get(i)
        box = partition.box_of[i]
        if leaf is not None:
            shared = len(graph.consumer_places(i)) >= LEAST_OPS
            now.append(color(("leaf", i if shared else leaf.tensor)))
        elif box in partition.parts:
            now.append(color(("box", box)))
        else:
            now.append(color((op, outputs, scope, (source.file, source.line) if source else None)))
            single.append(i)
    consumer, producer, output, position = (column(graph.edges, name) for name in Edge._fields[:4])
    position = [0 if len(graph.input_places(node)) >= LEAST_OPS else at for node, at in zip(consumer, position)]
    output = [0 if len(made[node]) >= LEAST_OPS else at for node, at in zip(producer, output)]
    for _ in range(2):
        after = list(now)
        for i in single:
            feeding = tuple([(now[producer[at]], output[at], position[at]) for at in graph.input_places(i)])
            fed = frozenset([(now[consumer[at]], position[at]) for at in graph.consumer_places(i)])
            after[i] = color((now[i], feeding, fed))
        now = after
    return {i: now[i] for i in single}


# -- equal branches ----------------------------------------------------------------------------------------------------

TRIES = 20
"""Steps that are tried one by one where all of them together would close a cycle."""


def _branches(partition: Partition, alike: Mapping[int, Sequence[int]]) -> tuple[Iterable[list[int]], dict[int, int]]:
    """Sets of `alike` ops, by role, joined where each op of one set feeds one op of the next and no box would wait for itself.

    The roles of each joined set, which has one op of each in every branch, and the branch of each op.
    """
    steps = list(_steps(partition.graph, alike))
    chosen = steps
    if _is_tangled(partition, alike, steps):
        chosen = []
        for step in steps[:TRIES]:
            if not _is_tangled(partition, alike, [*chosen, step]):
                chosen.append(step)
    set_of, turn_of = _joined(alike, chosen)
    sets: dict[int, list[int]] = {}
    for role, its in set_of.items():
        sets.setdefault(its, []).append(role)
    return sets.values(), turn_of


class _Step(NamedTuple):
    """Two roles of which each op of the first feeds exactly one of the second, and those pairs of ops."""

    first: int
    second: int
    pairs: list[tuple[int, int]]


def _joined(alike: Mapping[int, Sequence[int]], steps: Iterable[_Step]) -> tuple[dict[int, int], dict[int, int]]:
    """The set that each role is in, and the branch of each op."""
    set_of = {role: role for role in alike}
    turn_of = {node: i for nodes in alike.values() for i, node in enumerate(nodes)}
    for first, second, pairs in steps:
        kept, moved = set_of[first], set_of[second]
        if kept != moved:
            turn = {turn_of[consumer]: turn_of[producer] for producer, consumer in pairs}
            for role in [role for role, its in set_of.items() if its == moved]:
                set_of[role] = kept
                turn_of.update({node: turn[turn_of[node]] for node in alike[role]})
    return set_of, turn_of


def _steps(graph: Graph, alike: Mapping[int, Sequence[int]]) -> Iterator[_Step]:
    role_of = {node: role for role, nodes in alike.items() for node in nodes}
    pairs: dict[tuple[int, int], dict[tuple[int, int], None]] = {}
    for producer, consumer in zip(column(graph.edges, "producer"), column(graph.edges, "consumer")):
        if producer in role_of and consumer in role_of:
            pairs.setdefault((role_of[producer], role_of[consumer]), {})[producer, consumer] = None
    scopes = column(graph.nodes, "scope")
    for (first, second), fed in pairs.items():
        one_each = len({producer for producer, _ in fed}) == len({consumer for _, consumer in fed}) == len(fed)
        same = scopes[alike[first][0]] == scopes[alike[second][0]]
        if same and one_each and len(fed) == len(alike[first]) == len(alike[second]):
            yield _Step(first, second, list(fed))


def _is_tangled(partition: Partition, alike: Mapping[int, Sequence[int]], steps: Iterable[_Step]) -> bool:
    """Whether a set of several roles that these steps join would lie on a cycle if it were one box."""
    set_of, _ = _joined(alike, steps)
    size = Counter(set_of.values())
    stand_in = {node: -1 - set_of[role] for role, nodes in alike.items() for node in nodes}
    return any(size[-1 - box] > 1 for loop in cycles(partition.edges(stand_in)) for box in loop)


# -- segments ----------------------------------------------------------------------------------------------------------

# Boxes that follow one another in the order they ran, each segment one box. Segments are pieces of one topological order,
# so joining them never closes a cycle. They end where few values are alive, which is between the steps of a computation.

LEAST = 3
"""Single ops that are joined to make room for a module: fewer take little."""


def join_segments(partition: Partition, most: int, spare: Collection[int | None] = (), *, across: bool = False) -> None:
    """Join boxes until about `most` follow one another, and at least one for each change of the module around them.

    With `across` a segment may lie in several modules. What lies in the calls in `spare` is left as it is.
    """
    boxes, edges = _ordered(partition)
    scopes = [None if across else partition.scope(box) for box in boxes]
    runs = [(start, end) for start, end in _runs(scopes) if partition.scope(boxes[start]) not in spare]
    alive = _alive(boxes, edges)
    members = partition.members()
    length = _length([end - start for start, end in runs], most)
    for start, end in runs:
        for first, after in _cut(start, end, length, alive):
            if after - first > 1 or most == 1:
                _join(partition, boxes[first:after], members)


def join_loose(partition: Partition, scopes: Collection[int | None]) -> None:
    """Join single ops that follow one another directly inside one of these calls (None: outside of all modules)."""
    boxes, _ = _ordered(partition)
    members = partition.members()
    keys = [None if box in partition.parts else (partition.scope(box),) for box in boxes]
    for start, end in _runs(keys):
        key = keys[start]
        if key is not None and key[0] in scopes and end - start >= LEAST:
            _join(partition, boxes[start:end], members)


def _ordered(partition: Partition) -> tuple[list[int], list[tuple[int, int]]]:
    """Boxes that are not leaves, every one after those it uses, and the edges between them."""
    leaves = {partition.box_of[leaf.node] for leaf in partition.graph.leaves} - partition.parts.keys()
    places = {box: place for box, place in partition.places().items() if box not in leaves}
    edges = [(producer, consumer) for producer, consumer in partition.edges() if producer not in leaves]
    return in_order(edges, places), edges


def _runs(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Where runs of equal keys begin, and where they end."""
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    return list(zip(starts, [*starts[1:], len(keys)]))


def _alive(boxes: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """How many values made before each place are used at it or after it."""
    place = {box: i for i, box in enumerate(boxes)}
    last_use = list(range(len(boxes)))
    for producer, consumer in edges:
        last_use[place[producer]] = max(last_use[place[producer]], place[consumer])
    change = [0] * (len(boxes) + 2)
    for i, last in enumerate(last_use):
        change[i + 1] += 1
        change[last + 1] -= 1
    return list(accumulate(change))


def _length(lengths: list[int], most: int) -> int:
    """The least length of a segment that leaves at most `most` of them, as far as that can be."""
    longest = max(lengths, default=1)
    return (
        bisect_left(range(1, longest), True, key=lambda length: sum(-(-whole // length) for whole in lengths) <= most)
        + 1
    )


def _cut(start: int, end: int, length: int, alive: list[int]) -> list[tuple[int, int]]:
    """Segments of about this length, each ending near there, where the fewest values are alive."""
    count = -(-(end - start) // length)
    room = length // 3
    cuts = [start]
    for i in range(1, count):
        ideal = start + i * (end - start) // count
        near = range(max(ideal - room, cuts[-1] + 1), min(ideal + room, end - 1) + 1)
        cuts.append(min(near, key=lambda place: (alive[place], abs(place - ideal)), default=ideal))
    return list(zip(cuts, [*cuts[1:], end]))


def _join(partition: Partition, boxes: list[int], members: dict[int, list[int]]) -> None:
    parts, nodes = partition.parts, partition.graph.nodes
    titles = [parts[box].title if box in parts else nodes[box].op for box in boxes]
    title = titles[0] if len(set(titles)) == 1 else f"{titles[0]} … {titles[-1]}"
    scope = ScopeTree(partition.graph).common({partition.scope(box) for box in boxes})
    partition.join([node for box in boxes for node in members[box]], Part("chain", title, 1, scope))


def join_leaves(partition: Partition, most: int) -> None:
    """Leave `most` leaves single, and put the rest into one box."""
    single = [leaf.node for leaf in partition.graph.leaves if partition.box_of[leaf.node] == leaf.node]
    rest = single[most:]
    if len(rest) > 1:
        partition.join(rest, Part("more", f"+{len(rest):,} more leaves"))
