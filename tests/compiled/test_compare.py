"""An eager and a compiled graph of the same code, by module and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

import gradviz
from gradviz.cli.main import cli
from gradviz.compiled.compare import CompiledDiff, compiled_diff
from gradviz.compiled.picture import _FATES, places
from gradviz.graph import Edge, Graph, Leaf, Node, NodeFlag, SourceLine, TensorInfo
from gradviz.memory.saved import saved
from tests.command_line import CliRunner
from tests.compiled.models import Block
from tests.walker.graphs import needs_raw


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def recorded(model: Any, x: torch.Tensor) -> Graph:
    with gradviz.record() as recording:
        loss = model(x).sum()
    return recording.graph(loss)


def compared(budget: float) -> CompiledDiff:
    net, x = Block(), torch.randn(3, 8)
    before = recorded(net, x)
    with torch._functorch.config.patch(activation_memory_budget=budget):
        found = compiled_diff(before, recorded(torch.compile(net, backend="aot_eager"), x))
    assert found is not None
    return found


def test_every_function_and_byte_is_in_one_row() -> None:
    found = compared(1.0)
    leaves = {leaf.node for leaf in found.before.leaves}
    assert sum(row.functions for row in found.rows) == len(found.before.nodes) - len(leaves)
    for graph, held in ((found.before, found.held_before), (found.after, found.held_after)):
        assert held == saved(graph).total.held
    assert sum(row.held_before for row in found.rows) == found.held_before
    assert sum(row.held_after for row in found.rows) == found.held_after


def test_the_same_module_and_line_are_one_row() -> None:
    rows = {row.module: row for row in compared(1.0).rows if row.functions and row.operations}
    assert {"norm", "mlp.0", "mlp.1", "mlp.2"} <= set(rows)
    assert rows["norm"].ops_before == ("NativeLayerNormBackward0",)
    assert rows["norm"].ops_after == ("aten.native_layer_norm_backward",)


@needs_raw
def test_what_is_recomputed_is_no_longer_held() -> None:
    kept, again = compared(1.0), compared(0.0)
    assert sum(row.recomputed for row in kept.rows) == 0 < sum(row.recomputed for row in again.rows)
    assert again.held_after < kept.held_after
    assert "recomputed" in {row.fate for row in again.rows}


def test_functions_without_an_operation_of_their_own_are_fused() -> None:
    rows = {row.module: row for row in compared(1.0).rows if row.functions}
    (sum_of_three,) = [row for row in rows.values() if row.ops_before == ("AddBackward0", "AddBackward0")]
    assert (sum_of_three.fused, sum_of_three.fate) == (2, "fused")
    assert {module: rows[module].fused for module in ("norm", "mlp.1")} == {"norm": 0, "mlp.1": 0}


def graph(*ops: str, ends: bool, compiled: bool) -> Graph:
    """A chain of functions on lines of their own, with a leaf that no gradient reaches unless it `ends` there."""
    flags: tuple[NodeFlag, ...] = ("in_compiled",) if compiled else ()
    nodes = [
        Node(i, op, (), len(ops) - i, source=SourceLine("net.py", i, "forward", op), flags=flags)
        for i, op in enumerate(ops)
    ]
    last = len(nodes)
    edges = [Edge(i, i + 1, 0, 0) for i in range(last if ends else last - 1)]
    leaf = Leaf(last, ("net.w",), "parameter", TensorInfo((), "float32", "cpu"))
    return Graph((*nodes, Node(last, "AccumulateGrad")), tuple(edges), leaves=(leaf,))


@pytest.mark.parametrize(("ends", "fate"), [(True, "fused"), (False, "dropped")])
def test_what_has_no_counterpart_is_fused_where_a_gradient_goes_through_and_else_dropped(ends: bool, fate: str) -> None:
    before = graph("sum", "view", ends=True, compiled=False)
    found = compiled_diff(before, graph("sum", ends=ends, compiled=True))
    assert found is not None
    assert [(row.ops_before, row.fate) for row in found.rows if not row.operations] == [(("view",), fate)]


def test_compiling_again_changes_nothing() -> None:
    net, x = Block(), torch.randn(3, 8)
    graphs = []
    for _ in range(2):
        torch._dynamo.reset()
        graphs.append(recorded(torch.compile(net, backend="aot_eager"), x))
    assert gradviz.diff(*graphs).empty


@needs_raw
def test_the_picture_has_a_box_for_each_line_of_each_module(tmp_path: Path) -> None:
    found = compared(0.0)
    files = [
        graph.save(str(tmp_path / name)) for graph, name in ((found.before, "eager.json"), (found.after, "c.json"))
    ]
    svg = str(tmp_path / "both.svg")
    assert CliRunner().invoke(cli, ["diff", *files, "-o", svg]).exit_code == 1
    text = Path(svg).read_text(encoding="utf-8")
    told = [fate for fate in ("changed", "leaf", "added", "removed", "op", "group") if f'class="gv-{fate}' in text]
    assert {_FATES[row.fate].kind for row in found.rows} == set(told)
    for row in found.rows:
        assert f"{row.functions} function{'' if row.functions == 1 else 's'} → {row.operations} operation" in text
    assert "held for backward" in text and "recomputed: results are computed again" in text


def test_places_are_joined_as_their_functions_are() -> None:
    found = compared(1.0)
    graph = places(found)
    titles = {(graph.nodes[e.consumer].op, graph.nodes[e.producer].op) for e in graph.edges}
    assert {("Gelu", "T, Addmm"), ("T, Addmm", "NativeLayerNorm"), ("Sum", "Add ×2")} <= titles
    assert graph.roots[0].node is not None and graph.nodes[graph.roots[0].node].op == "Sum"


def test_two_eager_graphs_are_compared_as_ever() -> None:
    graph = recorded(Block(), torch.randn(3, 8))
    assert compiled_diff(graph, graph) is None


@needs_raw
def test_the_command_compares_files(tmp_path: Path) -> None:
    found = compared(0.0)
    files = [
        graph.save(str(tmp_path / name)) for graph, name in ((found.before, "eager.json"), (found.after, "c.json"))
    ]
    told = CliRunner().invoke(cli, ["diff", *files])
    assert told.exit_code == 1
    assert "held for backward" in told.stdout and "recomputed" in told.stdout and "models.py:" in told.stdout
    data = json.loads(CliRunner().invoke(cli, ["diff", "--json", *files]).stdout)
    assert data["held_after"] == found.held_after and len(data["places"]) == len(found.rows)
