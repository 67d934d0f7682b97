"""A folding as a Graph of its boxes, for users: what `graph.fold()` gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradviz.fold.fold import opened
from gradviz.fold.folding import Folding
from gradviz.graph import Base, Data, Graph, Node, Root, Uses


def fold(graph: Graph, **options: Any) -> Graph:
    """The graph with closed groups as single nodes. Options are those of
    `gradviz.fold.fold.opened`.
    """
    return exported(opened(graph, **options))


def exported(folding: Folding) -> Graph:
    """The graph of boxes, each numbered as in the folding, which it remembers; the graph
    itself where nothing is closed.
    """
    if folding.opening is None:
        return folding.graph
    shared: dict[int, list[Uses]] = {}
    for (consumer, producer, output), count in sorted(folding.shared.items()):
        shared.setdefault(consumer, []).append(Uses(producer, output, count))

    nodes: list[Node] = []
    for i, box in enumerate(folding.boxes):
        slots = []
        for slot in box.saved:
            # a leaf that is drawn inside a box has no number of its own any more
            leaf = None if slot.leaf is None else folding.box_of[slot.leaf]
            slots.append(slot._replace(leaf=leaf if leaf in folding.leaf_in else None))
        group = box.group
        if group is not None:
            group = group._replace(shared=tuple(shared.get(i, ())))
        nodes.append(box._replace(id=i, saved=tuple(slots), group=group))

    return replace(
        folding.graph,
        nodes=tuple(nodes),
        edges=folding.edges,
        leaves=tuple(
            leaf._replace(node=box, base=_base(folding, leaf.base))
            for box, leaf in folding.leaf_in.items()
        ),
        roots=tuple(_root(folding, root) for root in folding.graph.roots),
        data=tuple(_data(folding, data) for data in folding.graph.data),
        # their numbers are those of the nodes that were folded
        backward=(),
        marks=(),
        program=(),
        folding=folding,
    )


def _root(folding: Folding, root: Root) -> Root:
    root = root._replace(base=_base(folding, root.base))
    if root.node is None:
        return root
    output = folding.output(root.node, root.output)
    return root._replace(node=folding.box_of[root.node], output=output)


def _data(folding: Folding, data: Data) -> Data:
    """Data at the boxes that take it; where in a closed one, nobody knows."""
    entries = data.position or (None,) * len(data.nodes)
    taken: dict[int, int | None] = {}
    for node, entry in zip(data.nodes, entries):
        box = folding.box_of[node]
        taken[box] = None if folding.boxes[box].group else entry
    position = tuple(taken.values()) if data.position else ()
    return data._replace(nodes=tuple(taken), position=position, function=None)


def _base(folding: Folding, base: Base | None) -> Base | None:
    if base is None or base.node is None:
        return base
    output = folding.output(base.node, base.output)
    return base._replace(node=folding.box_of[base.node], output=output)
