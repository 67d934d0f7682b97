"""Which modules stand at the beginning of the way from the inputs to the outputs, where a gradient arrives last.

Between those and the outputs lies the main path. A side branch, such as the queries and keys of an attention or the inside of a
residual block, may have a small gradient: nothing hangs on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.graph import Graph

Layer = Sequence[int]
"""The leaves of one module, by node."""


def main_path(graph: Graph, layers: Sequence[Layer], weak: Sequence[Layer]) -> bool:
    """Whether all modules at the beginning are among those that are weak, so that it is the main path which they lie on.

    Where each of them is in a residual block, the gradient passes beside them.
    """
    ways = [_bypass(graph, layer) for layer in weak]
    if "graph" in ways and "" not in ways:
        return False
    chosen = {tuple(layer) for layer in weak}
    rest = [layer for layer in layers if tuple(layer) not in chosen]
    leaves = {node for layer in layers for node in layer}
    return not any(_begins(graph, layer, leaves.difference(layer)) for layer in rest)


_FAR = 200  # operations between the inside of a residual block and its sum


def _bypass(graph: Graph, layer: Layer) -> str:
    """How a module is inside a residual block, where what it computes is added to what it was computed from; "" when it is not.

    "graph" where the graph shows that. "data" where something without a graph is added, as in the first block of a model.
    """
    users = [_user(graph, edge.consumer) for node in layer for edge in graph.consumers(node)]
    if not users:
        return ""
    first = min(users, key=lambda node: graph.nodes[node].sequence or 0)
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
    waiting = [edge.consumer for node in layer for edge in graph.consumers(node)]
    waiting = [_user(graph, node) for node in waiting]
    first = min(waiting, key=lambda node: graph.nodes[node].sequence or 0, default=None)
    if first is None:
        return False
    frontier, seen = [first], {first}
    for node in frontier:  # grows while it is read
        for edge in graph.inputs(node):
            if edge.producer in others:
                return False
            if edge.producer not in seen:
                seen.add(edge.producer)
                frontier.append(edge.producer)
    return True


_SHAPES = (
    "T",
    "Transpose",
    "Permute",
    "View",
    "UnsafeView",
    "Reshape",
    "Expand",
    "ToCopy",
    "Unsqueeze",
    "Slice",
    "Alias",
)


def _user(graph: Graph, node: int) -> int:
    """The operation that uses a parameter, behind those that only give it another shape or dtype."""
    while graph.nodes[node].op.startswith(tuple(f"{name}Backward" for name in _SHAPES)):
        consumers = graph.consumers(node)
        if not consumers:
            break
        node = consumers[0].consumer
    return node
