"""`torchrun -m gradviz COMMAND train.py`: every rank runs it by itself, one reports, and `gradviz merge` compares their files."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import gradviz
from gradviz.cli.main import cli
from gradviz.graph import Process
from tests.command_line import CliRunner
from tests.ranks.launch import launch, torchrun
from tests.rows import every_other

SAMPLES = Path(__file__).parents[2] / "samples"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="starts processes that find each other"),
]


def merged(folder: Path, *options: str, code: int) -> str:
    """What `gradviz merge` prints of the files of a launch."""
    files = sorted(str(path) for path in folder.glob("net.rank*.json"))
    done = CliRunner().invoke(cli, ["merge", *files, *options])
    assert done.exit_code == code, done.output
    return done.stdout if code < 2 else done.stderr


@pytest.mark.fresh
def test_torchrun_writes_a_file_for_each_rank_and_merge_compares_them(tmp_path: Path) -> None:
    done = torchrun(2, tmp_path, "render", "train.py", "-o", "net.json", "--", "other-branch")
    assert done.codes == [0], done.stderr
    assert "net.rank0.json" in done.stdout.splitlines() and "net.rank1.json" not in done.stdout
    assert {path.name for path in tmp_path.glob("*.json")} == {"net.rank0.json", "net.rank1.json"}

    said = merged(tmp_path, "-o", str(tmp_path / "all.svg"), code=1)
    assert said.startswith("train.py, ranks 0-1 of 2: loss.backward() at train.py:")
    assert re.search(r"3\. rank 1: net, train\.py:\d+: MulBackward0", said)
    assert "only some ranks have it" in (tmp_path / "all.svg").read_text()


@pytest.mark.parametrize(("reporter", "codes"), [(0, [1, 0]), pytest.param(1, [0, 1], marks=pytest.mark.long)])
def test_only_the_rank_that_reports_ends_with_1(reporter: int, codes: list[int], tmp_path: Path) -> None:
    done = launch(2, tmp_path, "check", "train.py", "--rank", reporter, "--", "unused")
    assert done.codes == codes, done.stderr
    assert done.stdout.startswith(f"rank {reporter} of 2\n") and done.stdout.count("[unused-parameter]") == 1


def test_a_script_that_fails_on_one_rank_ends_there_with_3_and_every_file_is_written(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "render", "train.py", "-o", "net.svg", "--", "raise")
    assert done.codes == [0, 3]
    assert done.stdout.splitlines()[-1] == "net.rank0.svg"
    assert "ValueError: no data for this rank" in done.stderr
    assert "until it failed at train.py:" in (tmp_path / "net.rank1.svg").read_text()
    assert (tmp_path / "net.rank0.svg").exists()


def test_ranks_that_are_alike(tmp_path: Path) -> None:
    assert launch(2, tmp_path, "render", "train.py", "-o", "net.json").codes == [0, 0]
    assert "ranks 0-1 alike; 16 nodes shared" in merged(tmp_path, code=0)


# -- the samples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "fault", "id"),
    every_other(
        [
            ("fsdp.py", (), "early", "nonleaf-parameter"),
            ("pipeline.py", ("--continue", "--rank", "1"), "unused", "unused-parameter"),
        ]
    ),
)
def test_check_finds_the_fault(name: str, options: tuple[str, ...], fault: str, id: str, tmp_path: Path) -> None:
    text = (SAMPLES / name).read_text()
    done = launch(2, tmp_path, "check", "train.py", "--json", *options, "--", "--fault", fault, text=text)
    assert id in [finding["id"] for finding in json.loads(done.stdout)["findings"]]


@pytest.mark.long
def test_stages_of_a_pipeline_need_the_whole_run(tmp_path: Path) -> None:
    """A stage that stopped at its first backward() would never send the gradient that the stage before waits for."""
    text = (SAMPLES / "pipeline.py").read_text()
    done = launch(2, tmp_path, "render", "train.py", "--continue", "-o", "net.json", text=text)
    assert done.codes == [0, 0], done.stderr


# -- names and bytes of what is sharded --------------------------------------------------------------------------------

FSDP = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
fully_shard(net[0])
fully_shard(net)
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
for step in range(2):
    net(torch.ones(3, 8)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_gathered_parameters_have_names(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "render", "train.py", "-o", "net.json", "--at", 2, text=FSDP)
    assert done.codes == [0, 0], done.stderr
    for rank in (0, 1):
        graph = gradviz.load(str(tmp_path / f"net.rank{rank}.json"))
        names = {name for leaf in graph.leaves for name in leaf.names}
        assert names == {"net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"}
        assert graph.process == Process(rank, 2)


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


def test_tensor_parallel_has_the_names_of_its_leaves(tmp_path: Path) -> None:
    done = launch(2, tmp_path, "tree", "train.py", "--by", "node", text=SHARDED)
    assert done.codes == [0, 0], done.stderr
    assert "net.0.weight  (16, 8) float32" in done.stdout
    assert "net.2.weight  (4, 16) float32" in done.stdout
