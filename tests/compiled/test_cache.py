"""inductor, and its cache on disk, which keeps the operations of a backward and drops what is known of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gradviz
from gradviz.graph import Graph

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="inductor needs a C++ compiler"),
]

SCRIPT = """
import sys
import torch, gradviz
from tests.compiled.models import Block

torch.manual_seed(0)
model = torch.compile(Block())
loss = model(torch.randn(3, 8)).sum()
gradviz.walk(loss).save(sys.argv[1])
loss.backward()
gradviz.walk(loss).save(sys.argv[2])
"""


def run(folder: Path, name: str) -> tuple[Graph, Graph]:
    files = [str(folder / f"{name}_{when}.json") for when in ("before", "after")]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, *files], env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    before, after = (gradviz.load(file) for file in files)
    return before, after


@pytest.mark.long
def test_on_a_cache_hit_operations_and_names_are_left_and_what_is_lost_is_said(tmp_path: Path) -> None:
    (first, freed), (second, _) = run(tmp_path, "first"), run(tmp_path, "second")
    inside = [[node for node in graph.nodes if "in_compiled" in node.flags] for graph in (first, freed, second)]
    ops = [[node.op for node in nodes] for nodes in inside]
    assert len(ops[0]) > 20 and ops[0] == ops[1] == ops[2]
    slots = [{slot.slot for node in nodes for slot in node.saved} for nodes in inside]
    assert slots[0] == slots[1] == slots[2]
    assert all(node.source is not None for node in inside[1][1:])  # what was read before backward is remembered
    assert [any("dropped what it knew" in note for note in graph.notes) for graph in (first, second)] == [False, True]
    reached = [{leaf.names for leaf in graph.leaves if graph.consumers(leaf.node)} for graph in (first, second)]
    assert reached[0] == reached[1] and ("model.aside.weight",) not in reached[0]
