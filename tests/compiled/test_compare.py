"""An eager and a compiled graph of the same code, by module and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from click.testing import CliRunner

import gradviz
from gradviz.cli.main import cli
from gradviz.compiled.compare import CompiledDiff, compiled_diff
from gradviz.graph import Graph
from gradviz.memory.saved import saved
from tests.compiled.models import Block


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
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


def test_what_is_recomputed_is_no_longer_held() -> None:
    kept, again = compared(1.0), compared(0.0)
    assert sum(row.recomputed for row in kept.rows) == 0 < sum(row.recomputed for row in again.rows)
    assert again.held_after < kept.held_after
    assert "recomputed" in again.fates()


def test_two_eager_graphs_are_compared_as_ever() -> None:
    graph = recorded(Block(), torch.randn(3, 8))
    assert compiled_diff(graph, graph) is None


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
