"""Graphs for the tests of the page: with modules, loops, long chains and random shapes."""

from __future__ import annotations

from gradviz.graph import Edge, Graph, Node, Root, Scope
from tests.builders import GRAPHS, accumulate, chain, leaf, odd_names, random_dag, shared_leaf, tensor


def blocks(count: int, ops: int = 5) -> Graph:
    """`count` alike modules in a row inside one, each with a parameter, a skip connection and an inner module."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    scopes = [Scope("", "Net", 1, None, count * 12)]
    per = ops + 1
    for block in range(count):
        outer = len(scopes)
        scopes += [Scope(f"blocks.{block}", "Block", 1, 0, 12), Scope(f"blocks.{block}.inner", "Inner", 1, outer)]
        first = block * per  # block 0 is nearest to the output
        for i in range(ops):
            scope = outer + 1 if 0 < i < ops - 1 else outer
            nodes.append(Node(first + i, f"Op{i}Backward0", (tensor(2, 3),), (count - block) * per - i, scope))
        nodes.append(accumulate(first + ops))
    for block in range(count):
        first, before = block * per, (block + 1) * per
        for i in range(ops):
            below = first + i + 1 if i + 1 < ops else before
            if below < len(nodes):
                edges.append(Edge(first + i, below, 0, 0))
        if before < len(nodes):
            edges.append(Edge(first, before, 0, 1))  # the skip connection
        edges.append(Edge(first + 2, first + ops, 0, 1))
    leaves = tuple(leaf(block * per + ops, f"blocks.{block}.inner.weight") for block in range(count))
    roots = (Root(0, 0, "loss", tensor()),)
    ordered = sorted(edges, key=lambda edge: (edge.consumer, edge.position))
    return Graph(tuple(nodes), tuple(ordered), leaves, roots, tuple(scopes), title="net", attribution="recorded")


def with_views(count: int) -> Graph:
    """A chain in which every other op only changes a shape."""
    ops = ("ExpBackward0", "ViewBackward0", "SinBackward0", "TBackward0", "MulBackward0")
    nodes = tuple(Node(i, ops[i * i % 5], (tensor(2, 3),), 2 * count - i) for i in range(2 * count))
    edges = tuple(Edge(i, i + 1, 0, 0) for i in range(2 * count - 1))
    return Graph(nodes, edges, roots=(Root(0, 0, "y", tensor(2, 3)),))


PAGES: dict[str, Graph] = {
    "blocks": blocks(7),
    "long": chain(700),
    "many blocks": blocks(90),
    "odd names": odd_names(),
    "shared leaf": shared_leaf(9),
    "random 1": random_dag(3, 120),
    "random 2": random_dag(4, 300),
    "views": GRAPHS["views"],
    "multi output": GRAPHS["multi_output"],
    "everything": GRAPHS["everything"],
}
"""Ten graphs whose boxes must never overlap, whatever is open."""


def hostile() -> Graph:
    """Names that would be markup, script or a closing tag if anything took them so."""
    bad = "</script><img src=x onerror=\"document.title='broken'\"><b>&amp;"
    nodes = (Node(0, bad, (tensor(2),), 1, 0, attributes={bad: bad}, names=(bad,)), accumulate(1))
    return Graph(
        nodes,
        (Edge(0, 1, 0, 0),),
        (leaf(1, bad),),
        (Root(0, 0, bad, tensor(2)),),
        (Scope(bad, bad, 1, None),),
        title=bad,
        attribution="recorded",
        notes=(bad,),
    )
