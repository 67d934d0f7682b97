"""The queue in which the engine keeps backward functions that are ready to run, with its exact order.

The engine takes the highest sequence number first. Equal ones (every AccumulateGrad has the same) come out as its binary heap
leaves them, so the heap is built here as the C++ library of Linux builds it: `std::push_heap` and `std::pop_heap`.
Source: https://gcc.gnu.org/onlinedocs/libstdc++/latest-doxygen/a00527_source.html (bits/stl_heap.h)
"""

from __future__ import annotations


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
        """Move the hole at the top down to a leaf, the larger child up each time, the right one when they are equal."""
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
        """Put `value` into the hole or above it, below every parent that is not smaller."""
        heap = self._heap
        while hole and heap[(hole - 1) // 2][0] < value[0]:
            heap[hole] = heap[(hole - 1) // 2]
            hole = (hole - 1) // 2
        heap[hole] = value
