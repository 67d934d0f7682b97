"""Parameters that FSDP2 shards: the graph holds their gathered copies, and a finding is exact all the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.checks.test_scripts import check, written

pytestmark = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="this torch itself cannot shard on a CPU"
)
SCRIPT = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 1)
        self.unused = nn.Linear(4, 4)
    def forward(self, x):
        return self.last(self.first(x).relu())

net = Net()
mesh = init_device_mesh("cpu", (1,))
fully_shard(net.first, mesh=mesh)
fully_shard(net, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.ones(2, 4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process."""
    hook = sys.excepthook  # torch puts its own in place, for good
    dist.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    yield
    if dist.is_initialized():  # running a script here ends the group that it leaves behind
        dist.destroy_process_group()
    sys.excepthook = hook


@pytest.mark.usefixtures("alone")
def test_what_takes_part_is_known_and_the_optimizer_holds_it(tmp_path: Path) -> None:
    (found,), _ = check(written(tmp_path, SCRIPT))
    assert (found["id"], found["names"]) == ("unused-parameter", ["net.unused.weight", "net.unused.bias"])
    assert found["code"].strip() == "self.unused = nn.Linear(4, 4)"


@pytest.mark.usefixtures("alone")
def test_a_model_that_is_right_is_left_alone(tmp_path: Path) -> None:
    assert check(written(tmp_path, SCRIPT.replace("relu()", "relu() + self.unused(x)"))) == ([], 0)
