"""Visits every node of a graph once, breadth first, and makes the edges. Ids are the order of discovery."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.capture import keepalive
from gradviz.capture.private import LAST, Node
from gradviz.columns import EdgeColumns
from gradviz.stages import Stage


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
    protect, band, last, small = keepalive.needed(), keepalive.BAND, LAST, keepalive.SMALL
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
                keepalive.keep(node, kept)
        if waiting and consumer == small:
            keepalive.keep_all(waiting)
    if len(nodes) > small:
        keepalive.keep_all(waiting)
    return Traversal(nodes, index, sequences, edges, none_inputs)
