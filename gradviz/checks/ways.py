"""Ways through a graph: what leads where, and which modules stand at the beginning of the main one, where a gradient arrives last.

A side branch, such as the queries and keys of an attention or the inside of a residual block, may have a small gradient: nothing
hangs on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from gradviz.graph import Graph


def behind(graph: Graph, start: Iterable[int | None], without: Collection[int] = ()) -> Iterator[int]:
    """The nodes that these lead to, they themselves among them. Ways end at nodes that are to be left `without`."""
    seen = {node for node in start if node is not None}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        yield node
        for edge in graph.inputs(node) if node not in without else ():
            if edge.producer not in seen:
                seen.add(edge.producer)
                waiting.append(edge.producer)


def from_outputs(graph: Graph, without: Collection[int] = ()) -> Collection[int]:
    """The nodes that backward comes to, where it ends at some: those that a gradient other than zero may reach."""
    return dict.fromkeys(behind(graph, (root.node for root in graph.roots), without))


Layer = Sequence[int]
"""The leaves of one module, by node."""


def main_path(graph: Graph, layers: Sequence[Layer], weak: Sequence[Layer]) -> bool:
    """Whether all modules at the beginning are among those that are weak, so that it is the main path which they lie on.

    Where each of them is in a residual block, the gradient passes beside them.
    """
    ways = [_bypass(graph, layer) for layer in weak]
    if "graph" in ways and "" not in ways:
        return False
    leaves = {node for layer in layers for node in layer}
    return not any(_begins(graph, layer, leaves.difference(layer)) for layer in layers if layer not in weak)


_FAR = 200  # operations between the inside of a residual block and its sum


def _bypass(graph: Graph, layer: Layer) -> str:
    """How a module is inside a residual block, where what it computes is added to what it was computed from; "" when it is not.

    "graph" where the graph shows that. "data" where something without a graph is added, as in the first block of a model.
    """
    first = _first_user(graph, layer)
    if first is None:
        return ""
    waiting, seen, data = [first], {first}, ""
    for node in waiting:  # grows while it is read
        for edge in graph.consumers(node):
            record = graph.nodes[edge.consumer]
            others = [other.producer for other in graph.inputs(edge.consumer) if other.producer not in seen]
            if record.op == "AddBackward0":
                if any(_is_behind(graph, other, first) for other in others):
                    return "graph"
                data = data or ("data" if record.none_inputs else "")
            if edge.consumer not in seen and len(seen) < _FAR:
                seen.add(edge.consumer)
                waiting.append(edge.consumer)
    return data


def _is_behind(graph: Graph, node: int, start: int) -> bool:
    """Whether an operation, not a leaf, is among those that `start` was computed from."""
    number = graph.nodes[node].sequence
    waiting, seen = [start], {start}
    while waiting and number is not None and node not in graph.leaf_of:
        for edge in graph.inputs(waiting.pop()):
            if edge.producer == node:
                return True
            if edge.producer not in seen and (graph.nodes[edge.producer].sequence or 0) > number:
                seen.add(edge.producer)
                waiting.append(edge.producer)
    return False


def _begins(graph: Graph, layer: Layer, others: set[int]) -> bool:
    """Whether a module takes what no other module has made: there is no leaf of another behind the operation that uses it."""
    first = _first_user(graph, layer)
    return first is not None and others.isdisjoint(behind(graph, [first]))


_SHAPES = tuple(
    f"{name}Backward"
    for name in (
        *("T", "Transpose", "Permute", "View", "UnsafeView", "Reshape"),
        *("Expand", "ToCopy", "Unsqueeze", "Slice", "Alias"),
    )
)


def _first_user(graph: Graph, layer: Layer) -> int | None:
    """The first operation that uses a parameter of a module, behind those that only give it another shape or dtype."""
    users = []
    for node in (edge.consumer for leaf in layer for edge in graph.consumers(leaf)):
        while graph.nodes[node].op.startswith(_SHAPES) and graph.consumers(node):
            node = graph.consumers(node)[0].consumer
        users.append(node)
    return min(users, key=lambda node: graph.nodes[node].sequence or 0, default=None)
