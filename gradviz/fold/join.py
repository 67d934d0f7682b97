"""Joins boxes that repeat: calls of one module, alike siblings, and ops that a Python loop ran again and again.

Joining can close a cycle: cell -> mask -> cell -> mask becomes cell <-> mask. Then everything on the cycle is one loop, and is
joined as one box when it is regular: when each kind of box on it occurs about as often. Otherwise nothing is joined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from gradviz.fold.alike import branches
from gradviz.fold.partition import Part, Partition, cycles
from gradviz.graph import (
    Edge,
    Graph,
    GroupKind,
    Scope,
    column,
)
from gradviz.graph.amounts import forward_order
from gradviz.wording import plural

LEAST_OPS = 8
"""Single ops are joined only when a loop ran them this often: fewer are easier to read one by one."""


class Family(NamedTuple):
    """Calls that may become one box: the nodes of each turn, in the order they ran, and the module that each turn called."""

    kind: Literal["alike", "repeat"]
    modules: tuple[Scope, ...]
    turns: tuple[tuple[int, ...], ...]
    scope: int | None

    @property
    def title(self) -> str:
        """`cell LSTMCell`; `blocks.1–11 Block` for siblings that differ in their last number, else first and last path."""
        first, last = self.modules[0], self.modules[-1]
        if first.path == last.path:
            return module_title(first)
        stem, dot, number = first.path.rpartition(".")
        last_stem, _, last_number = last.path.rpartition(".")
        if stem == last_stem and number.isdigit() and last_number.isdigit():
            return f"{stem}{dot}{number}–{last_number} {first.type}"
        return f"{first.path} … {last.path} {first.type}"


def module_title(scope: Scope) -> str:
    """Path and class of a module; only the path of one that has no name of its own, and is called by its class there."""
    return titled(scope.path, scope.type)


def titled(path: str, type: str) -> str:
    """`encoder.fc Linear`; `loss.MSELoss` where the path says the class already, which stands in for a missing name."""
    return path if path.rpartition(".")[2] == type else f"{path} {type}".strip()


def join_families(partition: Partition, families: Sequence[Family]) -> None:
    """Join the turns of each family, and what lies on a cycle with them when it repeats as they do."""
    families = list(families)
    for _ in range(2):
        irregular = _join(partition, families)
        families = [run for family in irregular for run in _runs(family, partition)]
        if not families:
            return


def _join(partition: Partition, families: list[Family]) -> list[Family]:
    """One round. Returns the families that could not be joined."""
    family_of = {partition.box_of[turn[0]]: i for i, family in enumerate(families) for turn in family.turns}
    number: dict[Hashable, int] = {}
    classes: list[list[int]] = []  # boxes by class
    class_of: dict[int, int] = {}
    for box in dict.fromkeys(partition.box_of):
        key: Hashable = ("family", family_of[box]) if box in family_of else box
        if key not in number:
            number[key] = len(classes)
            classes.append([])
        class_of[box] = number[key]
        classes[number[key]].append(box)
    loops = cycles(len(classes), _class_edges(partition, class_of))
    looped = {one for loop in loops for one in loop}
    members = partition.members()
    failed: list[Family] = []
    for i, family in enumerate(families):
        if number["family", i] not in looped:
            _join_alone(partition, family)
    for loop in loops:
        inside = [families[i] for i in range(len(families)) if number["family", i] in loop]
        plain = [node for one in loop for box in classes[one] if box not in family_of for node in members[box]]
        if any(box in partition.parts and box not in family_of for one in loop for box in classes[one]) or not (
            _is_regular(partition.graph, inside, plain)
        ):
            failed.extend(inside)
        else:
            _join_loop(partition, inside, plain)
    return failed


def _class_edges(partition: Partition, class_of: dict[int, int]) -> set[tuple[int, int]]:
    box_of = partition.box_of
    consumers, producers = (column(partition.graph.edges, name) for name in ("consumer", "producer"))
    return {
        (class_of[box_of[consumer]], class_of[box_of[producer]]) for consumer, producer in zip(consumers, producers)
    }


def _is_regular(graph: Graph, families: Sequence[Family], plain: Sequence[int]) -> bool:
    """Whether everything on a loop repeats about as often as its largest family turns."""
    if not families:
        return False
    turns = max(len(family.turns) for family in families)
    made = _made(graph)
    kinds = Counter(made(node) for node in plain)
    counts = [*(len(family.turns) for family in families), *kinds.values()]
    return min(counts) >= max(turns - 1, 2)


def _join_alone(partition: Partition, family: Family) -> None:
    """Calls of one module that feed each other are an unrolled loop."""
    nodes = [node for turn in family.turns for node in turn]
    turn_of = {node: i for i, turn in enumerate(family.turns) for node in turn}
    feeds = any(
        turn_of.get(edge.producer, i) != i for node, i in turn_of.items() for edge in partition.graph.inputs(node)
    )
    kind: GroupKind = "loop" if feeds and family.kind == "repeat" else family.kind
    partition.turn_of.update(turn_of)
    partition.join(nodes, Part(kind, family.title, len(family.turns), family.scope))


def _join_loop(partition: Partition, families: Sequence[Family], plain: Sequence[int]) -> None:
    turns = max(len(family.turns) for family in families)
    for family in families:
        partition.turn_of.update({node: i for i, turn in enumerate(family.turns) for node in turn})
    partition.turn_of.update(_turns(partition.graph, plain, turns))
    words = [family.title for family in families]
    kinds = len(set(map(_made(partition.graph), plain)))
    if kinds:
        words.append(plural(kinds, "op"))
    kind: GroupKind = "alike" if all(family.kind == "alike" for family in families) else "loop"
    nodes = [*(node for family in families for turn in family.turns for node in turn), *plain]
    partition.join(nodes, Part(kind, " + ".join(words), turns, families[0].scope))


def _turns(graph: Graph, nodes: Iterable[int], turns: int) -> dict[int, int]:
    """Which turn each of these nodes belongs to, by its place among its equals in forward order."""
    wanted, made = set(nodes), _made(graph)
    kinds: dict[Hashable, list[int]] = {}
    for node in forward_order(graph):
        if node in wanted:
            kinds.setdefault(made(node), []).append(node)
    return {node: i * turns // len(same) for same in kinds.values() for i, node in enumerate(same)}


def _made(graph: Graph) -> Callable[[int], Hashable]:
    """What tells nodes of one kind from others: their op and what it made."""
    ops, outputs = column(graph.nodes, "op"), column(graph.nodes, "outputs")
    return lambda node: (ops[node], outputs[node])


def _runs(family: Family, partition: Partition) -> list[Family]:
    """The parts of a family whose turns follow one another, with at most single ops of the same scope between them."""
    graph, own = partition.graph, {node for turn in family.turns for node in turn}
    order, scopes = forward_order(graph), column(graph.nodes, "scope")
    place = {node: i for i, node in enumerate(order)}
    between = [
        i
        for i, node in enumerate(order)
        if node not in own and node not in graph.leaf_of
        if partition.box_of[node] in partition.parts or scopes[node] != family.scope
    ]
    runs: list[list[int]] = []
    for i, turn in enumerate(family.turns):
        end = place[family.turns[i - 1][-1]] if i else -1
        if not runs or bisect_left(between, end) != bisect_left(between, place[turn[0]]):
            runs.append([])
        runs[-1].append(i)
    return [
        family._replace(modules=tuple(family.modules[i] for i in run), turns=tuple(family.turns[i] for i in run))
        for run in runs
        if 1 < len(run) < len(family.turns)
    ]


# -- single ops --------------------------------------------------------------------------------------------------------


def join_ops(partition: Partition) -> None:
    """Join ops outside closed modules that a loop ran many times: same op, shape, place in the code, and neighbours.

    The first and last turns of a loop have other neighbours. What of them lies on the loop's cycle is joined too, as long
    as it is little beside the rest.
    """
    roles: dict[int, list[int]] = {}
    for node, role in _roles(partition).items():
        roles.setdefault(role, []).append(node)
    repeated = {role: nodes for role, nodes in roles.items() if len(nodes) >= LEAST_OPS}
    members = partition.members()
    while repeated:
        class_of = {box: box for box in partition.box_of}
        role_at = {partition.box_of[nodes[0]]: role for role, nodes in repeated.items()}
        for nodes in repeated.values():
            class_of.update((partition.box_of[node], partition.box_of[nodes[0]]) for node in nodes)
        number = {one: i for i, one in enumerate(dict.fromkeys(class_of.values()))}
        boxes = list(number)
        edges = _class_edges(partition, {box: number[one] for box, one in class_of.items()})
        found = (_loop(partition, [boxes[i] for i in loop], role_at, members) for loop in cycles(len(number), edges))
        loops = [loop for loop in found if loop.roles]  # joining made no other cycle
        irregular = {role for loop in loops if not _is_even(loop, repeated) for role in loop.roles}
        if not irregular:
            _join_roles(partition, repeated, loops)
            return
        repeated = {role: nodes for role, nodes in repeated.items() if role not in irregular}


class _Loop(NamedTuple):
    """What lies on one cycle: ops that repeat, by role; single ops besides; and whether closed boxes are in the way."""

    roles: list[int]
    others: list[int]
    blocked: bool


def _loop(partition: Partition, boxes: Sequence[int], role_at: dict[int, int], members: dict[int, list[int]]) -> _Loop:
    roles = [role_at[box] for box in boxes if box in role_at]
    others = [members[box][0] for box in boxes if box not in role_at]
    return _Loop(roles, others, any(box in partition.parts for box in boxes))


def _is_even(loop: _Loop, repeated: dict[int, list[int]]) -> bool:
    """Whether nearly everything on the loop repeats, each about as often."""
    counts = [len(repeated[role]) for role in loop.roles]
    if loop.blocked:
        return False
    return min(counts) * 10 >= max(counts) * 8 and len(loop.others) * 4 <= sum(counts)


def _join_roles(partition: Partition, repeated: dict[int, list[int]], loops: Sequence[_Loop]) -> None:
    graph = partition.graph
    looped = {role for loop in loops for role in loop.roles}
    for loop in loops:
        nodes = [node for role in loop.roles for node in repeated[role]]
        turns = min(len(repeated[role]) for role in loop.roles)
        partition.turn_of.update(_turns(graph, nodes, turns))
        title, scope = _ops_title(graph, repeated, loop.roles), graph.nodes[nodes[0]].scope
        partition.join([*nodes, *loop.others], Part("loop", title, turns, scope, owns=False))
    chained = {role for role, nodes in repeated.items() if role not in looped and _feeds_itself(graph, nodes)}
    for role in chained:
        nodes, first = repeated[role], graph.nodes[repeated[role][0]]
        partition.turn_of.update({node: i for i, node in enumerate(nodes)})
        partition.join(nodes, Part("chain", first.op, len(nodes), first.scope, owns=False))
    alike = {role: nodes for role, nodes in repeated.items() if role not in looped and role not in chained}
    for one in branches(partition, alike):
        nodes = [node for role in one.roles for node in repeated[role]]
        partition.turn_of.update({node: one.turn_of[node] for node in nodes})
        title, scope = _branch_title(graph, repeated, one.roles), graph.nodes[nodes[0]].scope
        partition.join(nodes, Part("alike", title, len(repeated[one.roles[0]]), scope, owns=False))


def _feeds_itself(graph: Graph, nodes: Sequence[int]) -> bool:
    """Whether ops of one role feed each other."""
    inside, producers = set(nodes), column(graph.edges, "producer")
    return any(producers[place] in inside for node in nodes for place in graph.input_places(node))


def _ops_title(graph: Graph, repeated: dict[int, list[int]], roles: Sequence[int]) -> str:
    """The ops of one turn in data order, `MulBackward0 → AddBackward0`; only how many there are when they are many."""
    if len(roles) > 3:
        return f"{len(roles)} ops"
    return " → ".join(_ops(graph, repeated, roles))


def _branch_title(graph: Graph, repeated: dict[int, list[int]], roles: Sequence[int]) -> str:
    """The ops of one branch in data order, only the first and the last where there are more: `SelectBackward0 … MulBackward0`."""
    ops = _ops(graph, repeated, roles)
    return f"{ops[0]} … {ops[-1]}" if len(ops) > 2 else " → ".join(ops)


def _ops(graph: Graph, repeated: dict[int, list[int]], roles: Sequence[int]) -> list[str]:
    """The op of each role in the order they ran first."""
    sequences = column(graph.nodes, "sequence")
    first = sorted(roles, key=lambda role: min(sequences[node] or 0 for node in repeated[role]))
    return [graph.nodes[repeated[role][0]].op for role in first]


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
    facts = zip(*(column(graph.nodes, name) for name in ("op", "outputs", "scope", "source")))
    for i, (op, outputs, scope, source) in enumerate(facts):
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
