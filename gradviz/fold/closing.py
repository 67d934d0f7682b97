"""Turns closed module calls into boxes, so that no box waits for itself, whatever nodes the calls are said to contain.

A recorded call is an interval of the order in which ops ran, and intervals of an order never wait for each other. A call that was
guessed, or read from a file, may hold any nodes: where its box would close a cycle, it becomes several boxes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cached_property

from gradviz.fold.join import module_title
from gradviz.fold.partition import Part, Partition, cycles
from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.scopes import ScopeTree


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
        edges = {(class_of[producer], class_of[consumer]) for producer, consumer in self._edges()}
        found: dict[int, list[list[int]]] = {}
        for loop in cycles(count + len(self._graph.nodes), edges):
            inside = [node for one in loop for node in (members[calls[one]] if one < count else [one - count])]
            for one, run in self._runs(inside, class_of, count):
                found.setdefault(calls[one], []).append(run)
        return {call: parts for call, parts in found.items() if len(parts) > 1}

    def _is_interval(self, call: int) -> bool:
        inside, place = self._tree.members[call], self._place
        return self._is_in_order and (not inside or place[inside[-1]] - place[inside[0]] + 1 == len(inside))

    @cached_property
    def _place(self) -> list[int]:
        """Where each node stands in forward order."""
        place = [0] * len(self._graph.nodes)
        for i, node in enumerate(forward_order(self._graph)):
            place[node] = i
        return place

    @cached_property
    def _is_in_order(self) -> bool:
        """Whether data runs along the forward order, which it need not when several threads numbered the nodes."""
        numbered = [number is not None for number in column(self._graph.nodes, "sequence")]
        place = self._place
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
            one = class_of[node]
            if not ready.get(one):
                heapq.heappush(heap, (one < closed, self._place[node], one))
            ready.setdefault(one, []).append(node)

        for node in nodes:
            if not waiting[node]:
                add(node)
        while heap:
            one, run = heapq.heappop(heap)[2], []
            while ready[one]:
                node = ready[one].pop()
                run.append(node)
                for other in following[node]:
                    waiting[other] -= 1
                    if not waiting[other]:
                        add(other)
            if run and one < closed:
                yield one, run
