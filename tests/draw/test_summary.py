"""The summary: numbers that are right, and never more than a screen."""

from __future__ import annotations

import pytest

from gradviz.graph import Graph
from gradviz.graph.amounts import depth
from tests.builders import GRAPHS, chain, diamond, random_dag


@pytest.mark.parametrize("name", GRAPHS)
def test_the_summary_fits_a_screen(name: str) -> None:
    text = str(GRAPHS[name])
    assert text.startswith("Graph") and len(text.split("\n")) <= 50
    assert not any(line != line.rstrip() and name != "odd_names" for line in text.split("\n"))


@pytest.mark.parametrize(
    ("graph", "length"),
    [(Graph(), 0), (chain(7), 7), (diamond(), 2), (GRAPHS["single_leaf"], 0), (chain(5_000), 5_000)],
)
def test_longest_path(graph: Graph, length: int) -> None:
    assert depth(graph) == length


def test_longest_path_against_every_path() -> None:
    graph = random_dag(9, 25)
    best = 0
    paths = [[root.node] for root in graph.roots if root.node is not None]
    while paths:
        path = paths.pop()
        best = max(best, sum(node not in graph.leaf_of for node in path))
        paths += [[*path, edge.producer] for edge in graph.inputs(path[-1])]
    assert depth(graph) == best
