"""`gradviz saved`: the table, the JSON, the numbers and the ways to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gradviz as package
from gradviz.memory.saved import saved
from gradviz.wording import bytes_text, parse_size
from tests.cli.conftest import Gradviz
from tests.cli.scripts import script
from tests.fold.saving import random_saving

pytestmark = pytest.mark.slow

FAKE = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

with FakeTensorMode():
    w = torch.randn(100_000, 100_000, requires_grad=True)
    loss = w.exp().sum()
"""


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    random_saving(1).save(str(tmp_path / "graph.json"))
    return tmp_path / "graph.json"


def test_json_has_every_row_and_exact_bytes(gradviz: Gradviz, graph_file: Path) -> None:
    data = json.loads(gradviz("saved", graph_file, "--by", "tensor", "--json").stdout)
    expected = saved(package.load(str(graph_file)), "tensor")
    assert [row["bytes"] for row in data["rows"]] == [row.nbytes for row in expected.rows]
    assert data["totals"] == expected.totals._asdict()
    assert sum(row["bytes"] for row in data["rows"]) == data["totals"]["held_for_backward"]
    assert data["more"] is None


def test_json_says_what_top_cut(gradviz: Gradviz, graph_file: Path) -> None:
    data = json.loads(gradviz("saved", graph_file, "--by", "tensor", "--json", "--top", 2).stdout)
    assert len(data["rows"]) == 2
    assert sum(row["bytes"] for row in data["rows"]) + data["more"]["bytes"] == data["totals"]["held_for_backward"]


@pytest.mark.parametrize(("by", "told"), [("line", "train.py:"), ("module", "Linear"), ("tensor", "  node ")])
def test_the_table_names_its_rows(gradviz: Gradviz, graph_file: Path, by: str, told: str) -> None:
    lines = gradviz("saved", graph_file, "--by", by).stdout.splitlines()
    assert by in lines[0].split()
    assert any(told in line for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_top_cuts_and_says_so(gradviz: Gradviz, graph_file: Path) -> None:
    rows = len(saved(package.load(str(graph_file)), "tensor").rows)
    assert f"+{rows - 10} more" in gradviz("saved", graph_file, "--by", "tensor").stdout
    assert f"+{rows - 3} more" in gradviz("saved", graph_file, "--by", "tensor", "--top", 3).stdout
    assert "more" not in gradviz("saved", graph_file, "--by", "tensor", "--top", 0).stdout


def test_a_fake_run_allocates_nothing_and_tells_the_real_size(gradviz: Gradviz, tmp_path: Path) -> None:
    data = json.loads(gradviz("saved", script(tmp_path, FAKE), "--json", "--by", "op").stdout)
    assert data["totals"]["activations"] == 40_000_000_000
    assert data["totals"]["gradients"] == 40_000_000_000
    assert "37.3 GiB" in gradviz("saved", script(tmp_path, FAKE), "--by", "op").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(("--by", "lines"), "line"), (("--top", "-1"), "-1"), (("--top", "many"), "many"), (("--at", "2"), "saved graph")],
)
def test_wrong_use(gradviz: Gradviz, graph_file: Path, arguments: tuple[str, ...], told: str) -> None:
    assert told in gradviz("saved", graph_file, *arguments, code=2).output


def test_rows_that_were_not_recorded(gradviz: Gradviz, tmp_path: Path) -> None:
    graph = random_saving(1)
    bare = type(graph)(tuple(node._replace(scope=None, source=None) for node in graph.nodes), storages=graph.storages)
    bare.save(str(tmp_path / "bare.json"))
    assert "has no modules" in gradviz("saved", tmp_path / "bare.json", "--by", "module", code=2).output
    assert gradviz("saved", tmp_path / "bare.json").stdout.splitlines()[0].split()[-1] == "op"


MODULES = """
import torch
from torch import nn

net = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Sigmoid(), nn.Tanh()) for _ in range(4)))
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    names: dict[str, Any] = {}
    exec(MODULES, names)
    with package.record() as recording:
        loss = names["net"](names["torch"].ones(64, 8)).sum()
    recording.graph(loss, model=names["net"]).save(str(tmp_path / "net.json"))
    return tmp_path / "net.json"


def test_a_budget_names_modules_to_wrap(gradviz: Gradviz, recorded: Path) -> None:
    text = gradviz("saved", recorded, "--budget", "12 KiB").stdout
    data = json.loads(gradviz("saved", recorded, "--budget", "12KiB", "--json").stdout)
    assert data["budget"] == 12 * 1024 and data["fits"] and "the budget of 12.0 KiB holds" in text
    assert data["held_before"] - sum(step["freed"] for step in data["wrap"]) == data["held_after"] <= data["budget"]
    assert {step["type"] for step in data["wrap"]} == {"Sequential"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--budget", "lots"), "'lots' is not a size"),
        (("--budget", "0"), "not a size"),
        (("--budget", "1GiB", "--by", "op"), "leave out --by"),
    ],
)
def test_wrong_budgets(gradviz: Gradviz, recorded: Path, arguments: tuple[str, ...], told: str) -> None:
    assert told in gradviz("saved", recorded, *arguments, code=2).output


def test_a_budget_that_does_not_hold_is_exit_code_1(gradviz: Gradviz, recorded: Path) -> None:
    text = gradviz("saved", recorded, "--budget", "10", code=1).stdout
    data = json.loads(gradviz("saved", recorded, "--budget", "10", "--json", code=1).stdout)
    assert not data["fits"] and f"possible that was found is {bytes_text(data['peak_after'])}" in text


def test_a_budget_needs_modules(gradviz: Gradviz, tmp_path: Path) -> None:
    package.Graph().save(str(tmp_path / "empty.json"))
    assert "no modules" in gradviz("saved", tmp_path / "empty.json", "--budget", "1GiB", code=2).output


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("40GiB", 40 * 2**30), ("1.5 kib", 1536), ("1e9", 10**9), ("7", 7)]
    + [(text, None) for text in ("", "GiB", "-1", "1.2.3", "0.1", "1e999", "5 apples", "nan", "inf")],
)
def test_sizes(text: str, nbytes: int | None) -> None:
    assert parse_size(text) == nbytes
