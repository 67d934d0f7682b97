"""`torchrun -m gradviz COMMAND train.py`: one report for all ranks, also when one of them raises, is killed or hangs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gradviz
from tests.ranks.launch import launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="starts processes and looks for those left in /proc"),
]


def test_one_tree_of_two_ranks_that_differ(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "tree", "train.py", "--", "other-branch")
    assert (done.code, done.left) == (0, ())
    assert done.stdout.count("train.py, ranks 0-1 of 2") == 1
    assert "MulBackward0  [3. rank 1 only]" in done.stdout
    assert "3. rank 1: net, train.py:18: MulBackward0" in done.stdout


def test_one_picture_of_four_ranks_of_which_one_differs(tmp_path: Path) -> None:
    done = launch(4, tmp_path, "render", "train.py", "-o", "net.json", "--", "other-branch")
    assert (done.code, done.left, done.stdout) == (0, (), "net.json\n")
    assert [path.name for path in tmp_path.glob("*.json")] == ["net.json"]
    graph = gradviz.load(str(tmp_path / "net.json"))
    assert sum(node.op == "MulBackward0" for node in graph.nodes) == 1
    assert len(graph.leaves) == 6


def test_each_rank_by_itself_and_merged_later(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "render", "train.py", "-o", "net.json", "--ranks", "each", "--", "other-branch")
    assert (done.code, done.left) == (0, ())
    graphs = [gradviz.load(str(tmp_path / f"net.rank{rank}.json")) for rank in (1, 0)]
    assert [graph.process.rank for graph in graphs if graph.process is not None] == [1, 0]
    found = gradviz.merge(graphs)
    assert found.groups == ((0,), (1,)) and found.missing == ()
    assert sorted(found.graph.nodes[i].op for i in found.only[1]) == ["MulBackward0"]


def test_reports_that_are_equal_stand_once(tmp_path: Path) -> None:
    """A script with a process group cannot run twice in one process either, so `diff` reads both calls in one run."""
    done = launch(2, tmp_path, "diff", "train.py", "--at", 1, "--at", 2, "-o", "net.svg")
    assert (done.code, done.left) == (0, ())
    assert done.stdout.count("before: train.py, ranks 0-1 of 2, alike: loss.backward()") == 1
    assert {path.name for path in tmp_path.glob("*.svg")} == {"net.rank0.svg", "net.rank1.svg"}


def test_json_says_which_ranks_each_report_is_of(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "saved", "train.py", "--json", "--", "other-branch")
    reports = json.loads(done.stdout)["ranks"]
    assert [one["ranks"] for one in reports] == [[0], [1]]
    assert all(one["report"]["totals"]["held_for_backward"] > 0 for one in reports)


def test_a_rank_that_raises_leaves_the_others_waiting_for_it(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "tree", "train.py", "--ranks-wait", 1, "--", "raise")
    assert done.code != 0 and done.left == ()
    assert "Rank 0: it waits in all_reduce at train.py:32 for a rank that does not come." in done.stderr
    assert "Rank 1: the script failed at train.py:29: ValueError: no data for me" in done.stderr


def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "info", "train.py", "--ranks-wait", 1, "--", "die")
    assert done.code != 0 and done.left == ()
    assert "Rank 1: the process died outside torch.distributed." in done.stderr


FSDP = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
for layer in (net[0], net[2], net):
    fully_shard(layer)
optimizer = torch.optim.Adam(net.parameters())
for step in range(2):
    loss = net(torch.ones(3, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_gathered_parameters_have_their_names_and_shards_are_counted_as_held_here(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "render", "train.py", "-o", "net.json", "--ranks", "each", "--at", 2, text=FSDP)
    assert (done.code, done.left) == (0, ()), done.stderr
    graphs = [gradviz.load(str(tmp_path / f"net.rank{rank}.json")) for rank in (0, 1)]
    for graph in graphs:
        assert {name for leaf in graph.leaves for name in leaf.names} == {
            f"net.{i}.{what}" for i in (0, 2) for what in ("weight", "bias")
        }
        assert all(leaf.kind == "parameter" for leaf in graph.leaves)
    held = [graph.process.memory for graph in graphs if graph.process is not None]
    assert (
        sum(one.optimizer or 0 for one in held) >= 2 * 4 * 81
    )  # two moments of every element, on one rank or the other
    assert all((one.optimizer or 0) < 2 * 4 * 81 for one in held)
    assert all(one.gradients for one in held)
