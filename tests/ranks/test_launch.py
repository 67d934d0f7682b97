"""`torchrun -m gradviz COMMAND train.py`: one report for all ranks, also when one of them raises, is killed or hangs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gradviz
from tests.ranks.launch import launch, machines, torchrun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="starts processes and looks for those left in /proc"),
]


def test_one_tree_of_two_ranks_that_differ(tmp_path: Path) -> None:
    done = torchrun(2, tmp_path, "tree", "train.py", "--", "other-branch")
    assert (done.code, done.left) == (0, ())
    assert done.stdout.count("train.py, ranks 0-1 of 2") == 1
    assert "  [3. rank 1 only]" in done.stdout
    assert "3. rank 1: net, train.py:18: MulBackward0" in done.stdout


@pytest.mark.long
def test_the_files_of_two_machines_are_merged_later(tmp_path: Path) -> None:
    """Each machine has a launcher of its own. Here a rank is alone on its machine, so that there is nobody to report with."""
    done = machines(2, tmp_path, "render", "train.py", "-o", "net.json", "--", "other-branch")
    assert (done.code, done.left) == (0, ()), done.stderr
    graphs = [gradviz.load(str(tmp_path / f"net.rank{rank}.json")) for rank in (1, 0)]
    assert [graph.process.rank for graph in graphs if graph.process is not None] == [1, 0]
    found = gradviz.merge(graphs)
    assert found.groups == ((0,), (1,)) and found.missing == ()
    assert sorted(found.graph.nodes[i].op for i in found.only[1]) == ["MulBackward0"]
    assert len(found.graph.leaves) == 6


def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    done = torchrun(2, tmp_path, "info", "train.py", "--ranks-wait", 3, "--", "die")
    assert done.code != 0 and done.left == ()
    assert "Rank 1: the process was ended by SIGKILL after init_process_group at train.py:25" in done.stderr


FSDP = """
import json
import torch
import torch.distributed as dist
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
fully_shard(net[0])
fully_shard(net)
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
inputs = torch.ones(3, 8)
tracker = FSDPMemTracker(net, optimizer)
tracker.track_inputs((inputs,))
with tracker:
    for step in range(2):
        loss = net(inputs).pow(2).mean()
        told = tracker.get_tracker_snapshot("current").values()
        with open(f"tracked{dist.get_rank()}.json", "w") as file:
            json.dump({kind.value: size for one in told for kind, size in one.items() if kind != "Total"}, file)
        loss.backward()
        optimizer.step()
        tracker.reset_mod_stats()
dist.destroy_process_group()
"""


def test_memory_is_what_torch_tracks_and_gathered_parameters_have_names(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "render", "train.py", "-o", "net.json", "--ranks", "each", "--at", 2, text=FSDP)
    assert (done.code, done.left) == (0, ()), done.stderr
    for rank in (0, 1):
        graph = gradviz.load(str(tmp_path / f"net.rank{rank}.json"))
        names = {name for leaf in graph.leaves for name in leaf.names}
        assert names == {"net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"}
        assert graph.process is not None
        held, tracked = graph.process.memory, json.loads((tmp_path / f"tracked{rank}.json").read_text())
        assert held.parameters == tracked["Sharded Param"] + tracked["Unsharded Param"]
        assert tracked["Unsharded Param"] > 0  # those of the outermost module stay gathered until backward
        assert held.gradients == tracked["Sharded Grad"]
        assert held.optimizer == tracked["OptState"]
        loss = 4  # which the tracker counts, too
        assert held.saved == tracked["Activation"] + tracked["Inputs"] - loss


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(net[2], mesh=mesh["dp"])
w = distribute_tensor(torch.ones(4, 4, requires_grad=True), mesh, [Shard(0), Replicate()])
moved = (w.redistribute(mesh, [Replicate(), Replicate()]) * 2).sum().full_tensor()
loss = net(torch.ones(3, 8)).pow(2).mean() + moved
loss.backward()
dist.destroy_process_group()
"""


def test_tensor_parallel_shows_placements_and_the_collective_between(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "tree", "train.py", "--by", "node", text=SHARDED)
    assert (done.code, done.left) == (0, ())
    assert "net.0.weight  (16, 8) float32  S(0) on tp=2" in done.stdout
    assert "from P(sum) on tp=2 to R  all_reduce 48 B" in done.stdout
    assert done.stdout.count("all_reduce") == 1
    assert "net.2.weight  (4, 16) float32  S(0), S(1) on dp=1, tp=2  all_gather 128 B" in done.stdout  # a half of it
    assert "from S(0), R on dp=1, tp=2 to placements that autograd does not keep" in done.stdout
