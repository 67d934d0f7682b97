"""Visits every node of a graph once, breadth first, and makes the edges. Ids are the order of discovery."""

from __future__ import annotations

import _thread
import threading
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from gradviz.graph.columns import EdgeColumns
from gradviz.stages import Stage
from gradviz.walker.private import LAST, Node, wrappers_are_preserved


class Traversal(NamedTuple):
    nodes: list[Node]
    position_of: dict[Node, int]
    sequences: array[int]
    edges: EdgeColumns
    none_inputs: dict[int, int]


def traverse(starts: Sequence[Node]) -> Traversal:
    """Visit everything reachable from `starts`. The caller holds the roots, so no node dies on the way.

    Keepers are set at once as each node is visited, so that even an interrupted walk leaves a graph safe to delete. Only a
    graph that is too small to matter gets none.
    """
    nodes: list[Node] = []
    with Stage("walk", "nodes", nodes.__len__):
        return _traverse(starts, nodes)


def _traverse(starts: Sequence[Node], nodes: list[Node]) -> Traversal:
    """Fills `nodes`, which is empty."""
    index: dict[Node, int] = {}
    sequences = array("Q")
    edges = EdgeColumns()
    none_inputs: dict[int, int] = {}
    waiting: list[tuple[Node, list[Node]]] = []  # keepers of the first nodes, set when the graph turns out to be large
    for node in starts:
        if node not in index:
            index[node] = len(nodes)
            nodes.append(node)
            sequences.append(node._sequence_nr())
    find, number_next = index.get, sequences.append
    from_consumer, to_producer = edges.consumer.append, edges.producer.append
    at_output, at_position = edges.output.append, edges.position.append
    protect, band, last, small = needed(), BAND, LAST, SMALL
    for consumer, node in enumerate(nodes):  # grows while it is read
        sequence = sequences[consumer]
        floor = sequence - sequence % band
        kept: list[Node] | None = None
        position = -1
        for child, output in node.next_functions:
            position += 1
            if child is None:
                none_inputs[consumer] = none_inputs.get(consumer, 0) + 1
                continue
            producer = find(child)
            if producer is None:
                producer = index[child] = len(nodes)
                nodes.append(child)
                number = child._sequence_nr()
                number_next(number)
            else:
                number = sequences[producer]
            from_consumer(consumer)
            to_producer(producer)
            at_output(output)
            at_position(position)
            # keepalive.must_keep, written out: this line runs once per edge
            if protect and not (floor <= number < sequence) and number != last:
                if kept is None:
                    kept = [child]
                else:
                    kept.append(child)
        if kept is not None:
            if consumer < small:
                waiting.append((node, kept))
            else:
                keep(node, kept)
        if waiting and consumer == small:
            keep_all(waiting)
    if len(nodes) > small:
        keep_all(waiting)
    return Traversal(nodes, index, sequences, edges, none_inputs)


# Makes a deep graph that was walked safe to delete. From torch 2.12 or 2.13 on, a node's Python wrapper lives as long
# as the node. `~Node` takes its edges apart iteratively only for children that nobody else refers to; a child with a
# wrapper is deleted in a nested call, some 200 bytes of stack a level, and a chain of about 40,000 nodes ends the
# process with a segmentation fault. Walking a graph makes wrappers, so a walk must also make the deletion safe. The
# scheme: a node whose child lies in another band of `BAND` sequence numbers keeps that child in its `metadata`, which
# `~Node` drops after its edges. What is kept there is a `_Keeper`, whose `__del__` only puts the children in a queue;
# the outermost `__del__` of the thread drains it. So the nesting is at most `BAND` deep, whatever CPython's own
# limits are. Only direct children are kept, which the node's own edges keep anyway: nothing lives longer than it
# would have.

BAND = 64
"""Sequence numbers in a band. At 64, a thread with a 64 kB stack can still delete the graph."""

SMALL = 128
"""A graph of so few nodes is safe to delete without keepers, even in a thread with a 64 kB stack."""

KEY = "__gradviz_keeper__"
needed = wrappers_are_preserved


class _Queue(threading.local):
    def __init__(self) -> None:
        self.waiting: list[list[Node]] = []
        self.draining = False


_queue = _Queue()


class _Keeper:
    """Holds children of a node until the node is gone, then lets them go one after another instead of nested."""

    __slots__ = ("children",)

    def __init__(self, children: list[Node]) -> None:
        self.children = children

    def __del__(self, _queue: _Queue = _queue) -> None:
        outermost = interrupted = False
        while True:
            try:
                waiting = _queue.waiting
                if self.children:
                    waiting.append(self.children)
                    self.children = []
                if _queue.draining and not outermost:
                    break
                outermost = _queue.draining = True
                while waiting:
                    waiting.pop()  # may delete nodes, whose keepers then only append to `waiting`
                _queue.draining = False
                break
            except KeyboardInterrupt:  # would be swallowed by __del__: finish first, then raise it again
                interrupted = True
            except AttributeError:  # an interrupt came before the keeper was made
                break
        if interrupted:
            with suppress(RuntimeError):  # while the interpreter ends
                _thread.start_new_thread(_interrupt_soon, ())

    def __repr__(self) -> str:
        return "<gradviz: keeps this node's children until it is deleted>"


def _interrupt_soon() -> None:
    """Interrupt the main thread once it has left `__del__`, which would swallow that too."""
    time.sleep(0.01)
    _thread.interrupt_main()


def must_keep(sequence: int, child: int) -> bool:
    """Whether a node numbered `sequence` must keep its child numbered `child`.

    Between two kept edges the numbers fall strictly inside one band, so no unprotected path is longer than `BAND`. Edges
    to a later number exist (a view's regenerated `grad_fn`), and AccumulateGrad has no children to nest into.
    """
    return child != LAST and (child // BAND != sequence // BAND or child >= sequence)


def keep(node: Node, children: Sequence[Node]) -> None:
    """Keep these direct children of `node` until it is deleted. Once per node: a second call changes nothing."""
    metadata = node.metadata
    if KEY not in metadata:
        metadata[KEY] = _Keeper(list(children))


def keep_all(waiting: list[tuple[Node, list[Node]]]) -> None:
    """`keep` for each pair, and empty the list."""
    for node, children in waiting:
        keep(node, children)
    waiting.clear()
