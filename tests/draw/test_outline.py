"""The outline of modules: what is in a row, and how it is printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from rich.cells import cell_len
from torch import nn

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.tree import outline_table, render_text
from gradviz.fold import outline
from gradviz.gradients.table import rows
from gradviz.graph import Graph, TensorInfo
from gradviz.report.results import WIDE
from tests.fold.test_fold import blocks, loop


def shown(graph: Graph, **options: object) -> str:
    return "".join(render_text(graph, Options.of(options)))


def test_modules_come_in_the_order_they_ran_with_what_they_hold() -> None:
    rows = list(outline.modules(blocks(2)))
    assert [(row.depth, row.path, row.type or row.beside) for row in rows] == [
        (0, "", "Net"),
        (1, "", "exp"),
        (1, "blocks.0", "Block"),
        (2, "blocks.0.linear", "Linear"),
        (2, "", "relu"),
        (1, "blocks.1", "Block"),
        (2, "blocks.1.linear", "Linear"),
        (2, "", "relu"),
        (0, "", ""),
    ]
    assert [(row.ops, row.parameters, row.nbytes) for row in rows] == [
        (5, 36, 40), (1, 12, 8),
        (2, 12, 16), (1, 12, 8), (1, 0, 8),
        (2, 12, 16), (1, 12, 8), (1, 0, 8),
        (1, 0, 8),
    ]  # fmt: skip


def test_top_rows_add_up_to_the_graph() -> None:
    for graph in (blocks(7), blocks(5, between=True), loop(9, mask=True)):
        top = [row for row in outline.modules(graph) if row.depth == 0]
        assert sum(row.ops for row in top) == len(graph.nodes) - len(graph.leaves)
        assert sum(row.nbytes for row in top) == sum(storage.nbytes or 0 for storage in graph.storages)


def test_alike_siblings_are_one_row_and_repeated_calls_too() -> None:
    rows = list(outline.modules(blocks(12)))
    assert [(row.path, row.alike, row.ops) for row in rows if row.alike > 1] == [("blocks.0–11", 12, 24)]
    assert [(row.path, row.calls, row.ops) for row in rows if row.depth == 2] == [
        ("blocks.0.linear", 1, 12),
        ("", 1, 12),
    ]
    assert "blocks.0–11 Block ×12 " in shown(blocks(12)) and "×12: the sum of 12" in shown(blocks(12))
    assert len(list(outline.modules(blocks(12), every=True))) == 2 + 3 * 12 + 1
    (cell,) = [row for row in outline.modules(loop(9)) if row.path == "cell"]
    assert (cell.calls, cell.ops, cell.parameters) == (9, 18, 12)


def test_limits() -> None:
    _, *rows = shown(blocks(12), max_rows=3).splitlines()
    assert any("+" in row and "more rows" in row for row in rows[4:6])
    table, _ = outline_table(blocks(12), Options(depth=1))
    assert [row[0].plain for row in table.rows] == ["Net", "outside every module"]


def test_a_row_names_a_dtype_only_where_it_is_not_the_usual_one() -> None:
    """As a box of a picture does."""
    graph = blocks(2)
    last = max(node.id for node in graph.nodes if node.outputs and node.scope is not None)
    half = TensorInfo((3,), "float16", "cpu")
    nodes = tuple(node._replace(outputs=(half,)) if node.id == last else node for node in graph.nodes)
    text = shown(replace(graph, nodes=nodes))
    assert text.count("float16") >= 1 and text.count("float32") == 1
    assert "output: float32 where a row names none" in text


@pytest.mark.parametrize("width", [70, 80])
def test_the_path_gives_way_to_the_numbers(width: int) -> None:
    table, notes = outline_table(long_names(), Options(depth="all"))
    lines = [line.plain for line in table.lines(width)]
    assert max(map(cell_len, lines)) <= width < max(line.cell_len for line in table.lines(WIDE))
    assert lines[0].split() == ["module", "ops", "parameters", "output", "saved", "bar"]
    assert all("(3, 4)" in line for line in lines[1:3]) and "output: float32 in every row" in notes
    assert "…" in lines[3]


def test_names_of_modules_are_bold_and_numbers_dim() -> None:
    table, _ = outline_table(blocks(3), Options())
    line = next(line for line in table.lines(WIDE) if "blocks" in line.plain)
    styled = {line.plain[span.start : span.end].strip(): str(span.style) for span in line.spans}
    assert styled["blocks.0–2"] == "bold" and styled["Block ×3"] == "dim" and styled["6"] == "dim"
    assert styled[line.plain.rpartition("  ")[2]] == "cyan"


def long_names() -> Graph:
    graph = blocks(2)
    path = "a_module_whose_name_is_much_longer_than_any_column_could_be"
    info = TensorInfo((3, 4), "float32", "cpu")
    scopes = tuple(scope._replace(path=scope.path.replace("blocks", path), output=info) for scope in graph.scopes)
    return replace(graph, scopes=scopes)


def tower(sizes: Sequence[int]) -> nn.Module:
    """Blocks of one class in several sizes, and one of them that has no activation."""

    def block(a: int, b: int, *more: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(a, b), *more, nn.Linear(b, b))

    pairs = list(pairwise(sizes))
    blocks = [block(a, b, nn.ReLU()) for a, b in pairs[:-1]]
    return nn.Sequential(*blocks, block(*pairs[-1]))


def test_a_module_built_like_one_above_is_closed_whatever_its_sizes() -> None:
    net = tower([2, 3, 4, 5, 6])
    with gradviz.record() as recording:
        loss = net(torch.ones(1, 2)).sum()
    graph = recording.graph(loss, model=net)
    found = [row for row in outline.modules(graph) if row.type]
    assert [row.path for row in found if row.closed] == ["net.1", "net.2"]
    assert [row.path for row in found if row.type == "Linear"] == ["net.0.0", "net.0.2", "net.3.0", "net.3.1"]
    assert [row.parameters for row in found if row.closed] == [4 * 3 + 4 + 4 * 4 + 4, 5 * 4 + 5 + 5 * 5 + 5]
    assert not any(row.closed for row in outline.modules(graph, every=True))
    said = shown(graph)
    assert "closed: 2 modules built like one above (depth=all opens each)" in said
    assert "closed" not in shown(graph, depth="all")


def test_the_gradients_of_closed_modules_are_one_row_with_all_their_leaves() -> None:
    net = tower([2, 3, 4, 5, 6])
    with gradviz.record() as recording:
        loss = net(torch.ones(1, 2)).sum()
    flow = gradviz.flow(loss, model=net, recording=recording)
    every, closed = rows(flow, "module"), rows(flow, "module", every=False)
    assert len(every) == 11 and [row.name for row in closed if row.type == "Sequential" and row.name != "net"] == [
        "net.1",
        "net.2",
    ]
    inside = [row.parameters for row in every if row.name.startswith("net.1.") and row.parameters]
    (one,) = [row for row in closed if row.name == "net.1"]
    assert one.parameters == pytest.approx(math.hypot(*inside))
    (out,) = [row for row in every if row.name == "net.1.2"]
    assert one.norm == out.norm
    assert "closed: 4 module calls in modules built like one above" in str(flow)
