"""The summary: numbers that are right, and never more than a screen."""

from __future__ import annotations

import pytest

from gradviz.draw.summary import summary
from gradviz.graph import Graph
from gradviz.graph.amounts import depth
from tests.builders import (
    GRAPHS,
    chain,
    diamond,
    everything,
    random_dag,
    views,
)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_summary_fits_a_screen(name: str) -> None:
    text = str(GRAPHS[name])
    assert text.startswith("Graph") and len(text.split("\n")) <= 50
    assert not any(line != line.rstrip() and name != "odd_names" for line in text.split("\n"))


def test_the_whole_summary_of_a_graph_with_everything() -> None:
    assert summary(everything()).split("\n") == [
        "Graph of train.py:loss",
        "  1 backward function, 1 leaf, 1 output, 1 edge",
        "  longest path  1 backward function",
        "  outputs       out['y'][0] (s93, 4) float16 jagged cuda:0",
        "  leaves        w = tied.w (3, 4) float32, parameter",
        "  ops           1 ScaleBackward",
        "  saved         2 tensors live",
        "                1 tensor freed",
        "  flags         1 node: custom function",
        "                1 node: hooks",
        "  modules       2 calls of modules, recorded",
        "  notes         2 inputs without gradient",
        "                one saved tensor could not be read",
        "  recorded by   torch 2.13.0",
    ]


def test_ops_are_counted_and_the_rest_is_said() -> None:
    text = summary(random_dag(1, 400))
    graph = random_dag(1, 400)
    count = sum(node.op == "Op3Backward0" for node in graph.nodes)
    assert f"{count} Op3Backward0" in text or "+1 more" in text
    assert f"+{len(graph.leaves) - 6} more" in text


def test_an_output_without_a_graph_says_why() -> None:
    assert "constant () float32, no graph: it was made under torch.no_grad()" in summary(views())


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
