"""inductor, and its cache on disk, which keeps the program of a backward as text."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gradviz
from gradviz.graph import Graph

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("gcc") is None, reason="inductor needs a C++ compiler")]

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
def test_what_a_function_runs_is_also_read_from_the_cache_and_after_backward(tmp_path: Path) -> None:
    graphs = [*run(tmp_path, "first"), *run(tmp_path, "second")]
    assert len({node.attributes["ops"] for graph in graphs for node in graph.nodes if "compiled" in node.flags}) == 1
    for graph in graphs:
        reached = {leaf.names for leaf in graph.leaves if graph.consumers(leaf.node)}
        assert len(reached) == 6 and ("model.aside.weight",) not in reached
