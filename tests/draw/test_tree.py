"""The tree: one full row per node, references for the rest, and chains that do not indent."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from rich.console import Console

from gradviz.draw.options import Options
from gradviz.draw.output import encode
from gradviz.draw.tree import render_text
from gradviz.draw.tree_rows import TreeRows
from gradviz.graph import (
    Graph,
    Node,
)
from tests.builders import (
    GRAPHS,
    chain,
    diamond,
    odd_names,
    random_dag,
    shared_leaf,
)
from tests.draw.conftest import Golden
from tests.strategies import graphs


def written(graph: Graph, **options: object) -> str:
    return "".join(render_text(graph, Options.of(options)))


def rows(graph: Graph, **options: object) -> list[str]:
    """The rows only, without the notes below them."""
    return written(graph, **options).rpartition("\n\n")[0].split("\n")


def on_terminal(graph: Graph, width: int = 100, *, encoding: str = "utf-8", **options: object) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False).print(
        graph.tree(**options)
    )
    file.flush()
    assert isinstance(file.buffer, io.BytesIO)
    return file.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("name", GRAPHS)
def test_golden(name: str, golden: Golden) -> None:
    text = written(GRAPHS[name], by="node", saved=True)
    assert len(re.findall("^", text, re.M)) > 1
    golden(f"{name}.txt", encode(text))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(max_nodes=14))
def test_every_node_has_exactly_one_full_row_and_references_lead_to_one(graph: Graph) -> None:
    found = list(TreeRows(graph, Options(saved=True)))
    assert sorted(row.node for row in found if row.node is not None) == list(range(len(graph.nodes)))
    edges = {(edge.consumer, edge.producer) for edge in graph.edges}
    tops = [node.id for node in graph.nodes if not graph.consumers(node.id) and node.id not in graph.roots_of]
    rooted = sum(root.node is not None for root in graph.roots)
    saved = sum(len(node.saved) for node in graph.nodes)
    assert len(found) == len(edges) + len(tops) + len(graph.roots) + rooted + saved
    marked = {row.node for row in found if row.node is not None and row.parts[-1] == ("id", f"#{row.node}")}
    assert {row.see for row in found if row.see is not None} == marked
    for row in found:
        assert all(len(text.splitlines()) <= 1 for _, text in row.parts)


@pytest.mark.parametrize("seed", range(5))
def test_columns_grow_with_the_logarithm(seed: int) -> None:
    size = 3000
    deepest = max(len(row.guides) // 3 for row in TreeRows(random_dag(seed, size), Options()))
    assert deepest <= size.bit_length() + 3


@pytest.mark.slow
@pytest.mark.parametrize(("made", "size"), [(chain, 20_000), (shared_leaf, 10_000)], ids=["chain", "shared"])
def test_a_long_chain_stays_in_its_column(made: Callable[[int], Graph], size: int) -> None:
    graph = made(size)
    widths, count = set(), 0
    for row in TreeRows(graph, Options()):
        widths.add(len(row.guides))
        count += 1
    assert max(widths) <= 6 and count > len(graph.nodes)


def test_a_shortcut_does_not_swallow_the_main_stream() -> None:
    """`relu(f(x)) + x`: the long way shows x, the shortcut refers to it."""
    graph = Graph(
        tuple(Node(i, op) for i, op in enumerate(("Add", "Relu", "Conv", "Scale", "Exp", "Input"))),
        edges=tuple(
            sorted(
                (
                    *(edge for edge in chain(5).edges if edge.consumer),
                    *chain(1).edges[:1],
                    chain(1).edges[0]._replace(producer=5, position=1),
                )
            )
        ),
    )
    assert rows(graph) == ["Add", "├─ Input  see #5", "Relu", "Conv", "Scale", "Exp", "Input  #5"]


@pytest.mark.parametrize("limit", [1, 2, 7, 39, 60, 100, 1000])
def test_a_limit_of_rows_says_how_many_nodes_are_missing(limit: int) -> None:
    graph = random_dag(1, 40)
    everything = [row for row in rows(graph) if row]
    text = rows(graph, max_rows=limit)
    shown = [row for row in text if row and "max_rows=0" not in row]
    assert len(shown) == min(limit, len(everything))
    full = [row for row in shown if "see #" not in row and not row.startswith("out")]
    if len(full) < 40:
        assert text[-1] == f"+{40 - len(full)} more nodes (max_rows=0 shows all)"
    for row in text:
        assert limit < 100 or "see #" not in row or any(other.endswith(row.split()[-1]) for other in full)


def test_a_terminal_shows_what_a_file_has_and_cuts_wide_rows_visibly() -> None:
    assert on_terminal(diamond()).split() == written(diamond()).split()
    narrow = on_terminal(GRAPHS["everything"], width=30, by="node").splitlines()
    assert all(len(line) <= 30 for line in narrow) and any(line.endswith("…") for line in narrow)
    assert not [line for line in narrow if re.search(r"\(\S*…|\d…", line)]  # of a shape all or nothing
    assert "hidden to fit 30 columns" in " ".join(on_terminal(GRAPHS["everything"], width=30).split())


def test_markup_in_names_is_text() -> None:
    graph = Graph((Node(0, "[bold]x[/bold]"), Node(1, "[/]")))
    assert "[bold]x[/bold]" in on_terminal(graph) and "[/]" in on_terminal(graph)


def test_a_terminal_without_unicode() -> None:
    text = on_terminal(diamond(), encoding="ascii")
    assert "|- exp" in text and "`- sin" in text
    on_terminal(odd_names(), encoding="ascii")
