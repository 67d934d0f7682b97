"""Module calls as single boxes: closed calls, however tangled, and calls that repeat or are alike as one box.

Two calls are alike when their nodes, taken in the order they ran, have equal ops, output shapes and dtypes, equal places
among the inner modules, and the same wiring: every input comes from the node at the same place inside the call, from a
parameter of the same shape, or from outside. That is proven node by node and never by name.

A recorded call is an interval of the order in which ops ran, and intervals of an order never wait for each other. A call that was
guessed, or read from a file, may hold any nodes: where its box would close a cycle, it becomes several boxes.

Joining calls can close a cycle: cell -> mask -> cell -> mask becomes cell <-> mask. Then everything on the cycle is one loop, and
is joined as one box when it is regular: when each kind of box on it occurs about as often. Otherwise nothing is joined.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from gradviz.fold.partition import Part, Partition, cycles
from gradviz.graph import Edge, Graph, GroupKind, Node, Scope, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import ScopeTree
from gradviz.wording import plural

LEAST = 3
"""How many alike modules are worth joining: two are easier to read side by side."""


def structure(graph: Graph, tree: ScopeTree, scope: int) -> Hashable:
    """What makes a call alike another: equal values mean equal structure."""
    place = {node: i for i, node in enumerate(tree.members[scope])}

    def source(edge: Edge) -> Hashable:
        if edge.producer in place:
            return place[edge.producer], edge.output, edge.position
        leaf = graph.leaf_of.get(edge.producer)
        return ("leaf", leaf.tensor, edge.position) if leaf is not None else ("outside", edge.position)

    def described(node: Node) -> Hashable:
        return node.op, node.outputs, tree.relative(node.scope, scope), tuple(map(source, graph.inputs(node.id)))

    return tuple(described(graph.nodes[node]) for node in place)


def alike_siblings(graph: Graph, tree: ScopeTree, siblings: Sequence[int]) -> list[list[int]]:
    """Sets of at least `LEAST` calls among `siblings` that are alike and of different modules, in order of their first nodes.

    A cheap comparison comes first, so that the proof is made only for calls that could be alike.
    """
    likely: dict[Hashable, list[int]] = {}
    for scope in siblings:
        if tree.members[scope]:
            likely.setdefault((tree.scopes[scope].type, len(tree.members[scope])), []).append(scope)
    families: list[list[int]] = []
    for candidates in likely.values():
        if len({tree.scopes[scope].path for scope in candidates}) >= LEAST:
            proven: dict[Hashable, list[int]] = {}
            for scope in candidates:
                proven.setdefault(structure(graph, tree, scope), []).append(scope)
            families.extend(same for same in proven.values() if len(same) >= LEAST)
    return families


# -- closed calls ------------------------------------------------------------------------------------------------------


class Closing:
    """Closes calls of one graph."""

    def __init__(self, graph: Graph, tree: ScopeTree) -> None:
        self._graph, self._tree = graph, tree

    def close(self, partition: Partition, calls: Sequence[int]) -> list[int]:
        """Put the nodes of each call into one box, or into parts. Calls must not contain each other.

        Returns the calls that are one box. A part of one node stays that node.
        """
        tangled = self._tangled(calls)
        whole = [call for call in calls if call not in tangled]
        for call in whole:
            record = self._tree.scopes[call]
            partition.join(self._tree.members[call], Part("module", module_title(record), scope=record.parent))
        for call, parts in tangled.items():
            title = module_title(self._tree.scopes[call])
            for i, nodes in enumerate(parts):
                if len(nodes) > 1:
                    partition.join(nodes, Part("module", f"{title} (part {i + 1} of {len(parts)})", scope=call))
        return whole

    def _tangled(self, calls: Sequence[int]) -> dict[int, list[list[int]]]:
        """Calls that cannot be one box each, and their parts in an order of the data."""
        if all(map(self._is_interval, calls)):
            return {}
        members, count = self._tree.members, len(calls)
        class_of = list(range(count, count + len(self._graph.nodes)))  # a single node is a class of its own
        for i, call in enumerate(calls):
            for node in members[call]:
                class_of[node] = i
        parts: dict[int, list[list[int]]] = {}
        for loop in cycles((class_of[producer], class_of[consumer]) for producer, consumer in self._edges()):
            inside = [node for i in loop for node in (members[calls[i]] if i < count else [i - count])]
            for i, run in self._runs(inside, class_of, count):
                parts.setdefault(calls[i], []).append(run)
        return {call: runs for call, runs in parts.items() if len(runs) > 1}

    def _is_interval(self, call: int) -> bool:
        inside, place = self._tree.members[call], self._tree.position
        return self._is_in_order and (not inside or place[inside[-1]] - place[inside[0]] + 1 == len(inside))

    @cached_property
    def _is_in_order(self) -> bool:
        """Whether data runs along the forward order, which it need not when several threads numbered the nodes."""
        numbered = [number is not None for number in column(self._graph.nodes, "sequence")]
        place = self._tree.position
        return all(not numbered[producer] or place[producer] < place[consumer] for producer, consumer in self._edges())

    def _edges(self) -> Iterator[tuple[int, int]]:
        return zip(column(self._graph.edges, "producer"), column(self._graph.edges, "consumer"))

    def _runs(self, nodes: Sequence[int], class_of: Sequence[int], closed: int) -> Iterator[tuple[int, list[int]]]:
        """Walks the nodes in an order of the data that stays in a class as long as it can; yields the runs of closed classes.

        Runs of one order cannot wait for each other. Single nodes go first, so that a class is begun as late as it can be.
        """
        following: dict[int, list[int]] = {node: [] for node in nodes}
        waiting = dict.fromkeys(nodes, 0)
        for node in nodes:
            for edge in self._graph.inputs(node):
                if edge.producer in waiting:
                    following[edge.producer].append(node)
                    waiting[node] += 1
        ready: dict[int, list[int]] = {}
        heap: list[tuple[bool, int, int]] = []

        def add(node: int) -> None:
            its = class_of[node]
            if not ready.get(its):
                heapq.heappush(heap, (its < closed, self._tree.position[node], its))
            ready.setdefault(its, []).append(node)

        for node in nodes:
            if not waiting[node]:
                add(node)
        while heap:
            its, run = heapq.heappop(heap)[2], []
            while ready[its]:
                node = ready[its].pop()
                run.append(node)
                for other in following[node]:
                    waiting[other] -= 1
                    if not waiting[other]:
                        add(other)
            if run and its < closed:
                yield its, run


# -- calls that repeat -------------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """Calls that may become one box: the nodes of each turn, in the order they ran, and the module that each turn called."""

    kind: Literal["alike", "repeat"]
    modules: Sequence[Scope]
    turns: Sequence[Sequence[int]]
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
    family_of = {partition.box_of[turn[0]]: -1 - i for i, family in enumerate(families) for turn in family.turns}
    loops = cycles(partition.edges(family_of))
    looped = {box for loop in loops for box in loop}
    failed: list[Family] = []
    for i, family in enumerate(families):
        if -1 - i not in looped:
            _join_alone(partition, family)
    for loop in loops:
        inside = [families[-1 - box] for box in reversed(loop) if box < 0]
        plain = [box for box in loop if box >= 0]
        if any(box in partition.parts for box in plain) or not _is_regular(partition.graph, inside, plain):
            failed.extend(inside)
        else:
            _join_loop(partition, inside, plain)
    return failed


def _is_regular(graph: Graph, families: Sequence[Family], plain: Sequence[int]) -> bool:
    """Whether everything on a loop repeats about as often as its largest family turns."""
    if not families:
        return False
    turns = max(len(family.turns) for family in families)
    made = _made_by(graph)
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
    partition.turn_of.update(turns_of(partition.graph, plain, turns))
    words = [family.title for family in families]
    kinds = len(set(map(_made_by(partition.graph), plain)))
    if kinds:
        words.append(plural(kinds, "op"))
    kind: GroupKind = "alike" if all(family.kind == "alike" for family in families) else "loop"
    nodes = [*(node for family in families for turn in family.turns for node in turn), *plain]
    partition.join(nodes, Part(kind, " + ".join(words), turns, families[0].scope))


def turns_of(graph: Graph, nodes: Iterable[int], turns: int) -> dict[int, int]:
    """Which turn each of these nodes belongs to, by its place among its equals in forward order."""
    wanted, made = set(nodes), _made_by(graph)
    kinds: dict[Hashable, list[int]] = {}
    for node in forward_order(graph):
        if node in wanted:
            kinds.setdefault(made(node), []).append(node)
    return {node: i * turns // len(same) for same in kinds.values() for i, node in enumerate(same)}


def _made_by(graph: Graph) -> Callable[[int], Hashable]:
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
        family._replace(modules=[family.modules[i] for i in run], turns=[family.turns[i] for i in run])
        for run in runs
        if 1 < len(run) < len(family.turns)
    ]
