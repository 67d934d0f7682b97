"""The order in which the engine runs backward functions, and the queue in which it
keeps those that are ready.

The engine takes the highest sequence number first. Equal ones (every AccumulateGrad has
the same) come out as its binary heap leaves them, so the heap is built here as the C++
library of Linux builds it: `std::push_heap` and `std::pop_heap`. Source:
https://gcc.gnu.org/onlinedocs/libstdc++/latest-doxygen/a00527_source.html
(bits/stl_heap.h)
"""

from __future__ import annotations

from gradviz.graph import Graph, column


class ReadyQueue:
    """Node ids by sequence number, highest first.

    >>> queue = ReadyQueue()
    >>> for node, sequence in enumerate([3, 9, 4]):
    ...     queue.push(node, sequence)
    >>> [queue.pop() for _ in range(3)]
    [1, 2, 0]
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []  # sequence number, node id

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, node: int, sequence: int) -> None:
        """Add a function that is ready."""
        self._heap.append((sequence, node))
        self._rise(len(self._heap) - 1, (sequence, node))

    def pop(self) -> int:
        """Take out the next one to run."""
        heap = self._heap
        first, value = heap[0], heap.pop()
        if heap:
            self._rise(self._sink(), value)
        return first[1]

    def _sink(self) -> int:
        """Move the hole at the top down to a leaf, the larger child up each time, the
        right one when they are equal.
        """
        heap, hole, size = self._heap, 0, len(self._heap)
        child = 2
        while child < size:
            if heap[child][0] < heap[child - 1][0]:
                child -= 1
            heap[hole] = heap[child]
            hole, child = child, 2 * child + 2
        if child == size:  # the last parent has a left child only
            heap[hole] = heap[child - 1]
            hole = child - 1
        return hole

    def _rise(self, hole: int, value: tuple[int, int]) -> None:
        """Put `value` into the hole or above it, below every parent that is not
        smaller.
        """
        heap = self._heap
        while hole and heap[(hole - 1) // 2][0] < value[0]:
            heap[hole] = heap[(hole - 1) // 2]
            hole = (hole - 1) // 2
        heap[hole] = value


def engine_order(graph: Graph) -> list[int]:
    """The order in which the engine runs everything behind the roots, but for what was
    cut off.

    >>> from gradviz.graph import Edge, Graph, Node, Root, TensorInfo
    >>> nodes = (Node(0, "MulBackward0", sequence=5), Node(1, "ExpBackward0", sequence=3), Node(2, "SinBackward0", sequence=4))
    >>> edges = (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1))
    >>> engine_order(Graph(nodes, edges, roots=(Root(0, 0, "y", TensorInfo((), "float32", "cpu")),)))
    [0, 2, 1]
    """
    sequences, producers = (column(graph.nodes, "sequence"), graph.producers)
    starts, waiting = _waiting(graph)
    queue, order = ReadyQueue(), list[int]()
    ready = [node for node in starts if not waiting[node]]

    while ready or queue:
        for node in ready:
            sequence = sequences[node]
            queue.push(node, 2**64 if sequence is None else sequence)
        order.append(queue.pop())
        ready = []
        for place in graph.input_places(order[-1]):
            producer = producers[place]
            waiting[producer] -= 1
            if not waiting[producer]:
                ready.append(producer)

    return order


def _waiting(graph: Graph) -> tuple[tuple[int, ...], list[int]]:
    """Where backward starts; and of each node, how many edges lead to it from what is
    reached. None ever is of what was cut off.
    """
    producers = graph.producers
    off = ["cut" in flags for flags in column(graph.nodes, "flags")]
    queue = list(
        dict.fromkeys(
            root.node
            for root in graph.roots
            if root.node is not None and not off[root.node]
        )
    )
    starts, reached = tuple(queue), set(queue)
    waiting = [int(cut) for cut in off]

    for node in queue:  # grows while it is read
        for place in graph.input_places(node):
            producer = producers[place]
            waiting[producer] += 1
            if producer not in reached and not off[producer]:
                reached.add(producer)
                queue.append(producer)

    return starts, waiting
