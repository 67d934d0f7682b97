"""The tree of nodes: one row each, with what it was given."""

from __future__ import annotations

import io
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from rich.console import Console

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.output import encode
from gradviz.draw.tree import render_text
from gradviz.draw.tree_rows import TreeRows
from gradviz.graph import Graph, Node
from tests.builders import GRAPHS, diamond, random_dag
from tests.draw.conftest import Golden
from tests.strategies import graphs


def written(graph: Graph, **options: object) -> str:
    return "".join(render_text(graph, Options.of(options)))


def rows(graph: Graph, **options: object) -> list[str]:
    """The rows only, without the notes below them."""
    return written(graph, **options).rpartition("\n\n")[0].split("\n")


def on_terminal(graph: Graph, width: int = 100, **options: object) -> str:
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False).print(
        graph.tree(**options)
    )
    return file.getvalue()


@pytest.mark.parametrize("name", GRAPHS)
def test_golden(name: str, golden: Golden) -> None:
    text = written(GRAPHS[name], by="node", saved=True)
    assert len(re.findall("^", text, re.M)) > 1
    golden(f"{name}.txt", encode(text))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(max_nodes=14))
def test_every_node_has_one_row_above_those_that_it_was_given(graph: Graph) -> None:
    found = list(TreeRows(graph, Options(saved=True)))
    assert len(found) == len(TreeRows(graph, Options())) == len(graph.roots) + len(graph.nodes)
    place = {row.node: i for i, row in enumerate(found) if row.node is not None}
    assert sorted(place) == list(range(len(graph.nodes)))
    for edge in graph.edges:
        assert place[edge.consumer] <= place[edge.producer]
        given = next(text for style, text in found[place[edge.consumer]].parts if style == "id" and "←" in text)
        assert edge.producer in graph.leaf_of or f"#{edge.producer}" in given
    for row in found:
        assert all(len(text.splitlines()) <= 1 for _, text in row.parts)


@pytest.mark.parametrize("limit", [1, 7, 39, 1000])
def test_a_limit_of_rows_says_how_many_are_missing(limit: int) -> None:
    graph = random_dag(1, 40)
    everything = rows(graph)
    text = rows(graph, max_rows=limit)
    assert text[:limit] == everything[:limit]
    assert text[limit:] == [f"+{len(everything) - limit} more rows (max_rows=0 shows all)"][: limit < len(everything)]


def test_a_terminal_shows_what_a_file_has_and_cuts_wide_rows_visibly() -> None:
    assert on_terminal(diamond()).split() == written(diamond()).split()
    narrow = on_terminal(GRAPHS["everything"], width=30, by="node").splitlines()
    assert all(len(line) <= 30 for line in narrow) and any(line.endswith("…") for line in narrow)
    assert not [line for line in narrow if re.search(r"\(\S*…|\d…", line)]  # of a shape all or nothing
    assert "hidden to fit 30 columns" in " ".join(on_terminal(GRAPHS["everything"], width=30).split())


def test_markup_in_names_is_text() -> None:
    graph = Graph((Node(0, "[bold]x[/bold]"), Node(1, "[/]")))
    assert "[bold]x[/bold]" in on_terminal(graph) and "[/]" in on_terminal(graph)


def test_a_title_that_is_cut_keeps_the_name_of_the_module_and_how_often_it_counts() -> None:
    class ResidualFeedForwardLayer(torch.nn.Sequential):
        pass

    def layer() -> torch.nn.Module:
        return ResidualFeedForwardLayer(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))

    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), *(layer() for _ in range(3)))
    with gradviz.record() as recording:
        loss = layers(torch.rand(2, 8)).sum()
    shown = on_terminal(recording.graph(loss), width=56, depth=2)
    assert re.search(r"\n +1–3 Resid\w*… ×3 ", shown), shown
