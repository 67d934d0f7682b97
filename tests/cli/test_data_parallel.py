"""Names under data parallel: the wrapper's own `module.` is no part of a path, neither in a graph nor on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Gradviz
from tests.cli.scripts import script

WRAPPED = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
model = torch.nn.parallel.DistributedDataParallel(inner)
loss = model(torch.ones(2, 4)).sum()
loss.backward()
"""


@pytest.fixture(autouse=True)
def no_group_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch.distributed replaces it
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_a_tree_leaves_the_wrapper_out_of_paths(gradviz: Gradviz, tmp_path: Path) -> None:
    said = gradviz("tree", script(tmp_path, WRAPPED), "--by", "node").stdout
    assert "module" not in said
    assert "inner.0.weight  (4, 4)" in said or "model.0.weight  (4, 4)" in said


def test_nothing_is_tied_because_it_is_wrapped(gradviz: Gradviz, tmp_path: Path) -> None:
    assert "Nothing found" in gradviz("check", script(tmp_path, WRAPPED)).stdout


def test_a_name_that_was_shown_can_be_asked_for(gradviz: Gradviz, tmp_path: Path) -> None:
    assert "1 path" in gradviz("paths", script(tmp_path, WRAPPED), "--to", "model.2.bias").stdout
