"""A long run under `check` keeps no more than a short one, and checks look no more often at a node of a large graph."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradviz.checks.check import check_target
from gradviz.graph import Graph
from gradviz.run.target import parse_target
from tests.cli.scripts import environment

SCRIPT = """
import gc, sys
import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
total = 0.0
for step in range(5000):
    x = torch.randn(4, 2)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
    if step % 10 == 0:
        with torch.no_grad():
            total += net.eval()(x).mean().item()
        net.train()
    if step in (2999, 4999):  # both right before what was noted for 1,000 calls is forgotten
        gc.collect()
        print("kept", len(gc.get_objects()), sys.getallocatedblocks())
"""
CHECK = """
import sys
import gradviz.run.selection
from gradviz.__main__ import main
gradviz.run.selection.SECONDS = (600.0, 600.0)  # a busy machine is to come to the end, too
sys.argv = ["gradviz", "check", "long.py"]
main()
"""


@pytest.mark.slow
@pytest.mark.long
def test_5000_steps_keep_no_more_than_3000(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0 and "later backward calls, to the end" in " ".join(done.stdout.split()), done.stdout
    first, last = (list(map(int, line.split()[1:])) for line in done.stdout.splitlines() if line.startswith("kept "))
    objects, blocks = ((late - early) / 2000 for early, late in zip(first, last))
    assert objects < 0.5 and blocks < 2


DEEP = """
import torch
w, v, scale = (torch.randn(4, requires_grad=True) for _ in range(3))
optimizer = torch.optim.SGD([w, v, scale], lr=1e-3)
old = v * 1
for _ in range({length}):
    old = old + 0.001
for step in range(4):
    h = w.exp()
    for _ in range({length}):
        h = h + (scale * 2).detach()
        h = h + torch.relu(-h)
        h = h + torch.distributions.Normal(h, 1.0).sample()
        h = h.tanh() * scale
    optimizer.zero_grad()
    (h.sum() + (old * torch.randn(4)).sum()).backward(retain_graph=True)
    optimizer.step()
"""


def test_the_work_of_checks_grows_as_the_graph_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, steps = [], (Graph.input_places, Graph.consumers)

    def counted(function: Any) -> Any:
        return lambda *given: looks.append(given[1]) or function(*given)

    monkeypatch.setattr(Graph, "input_places", counted(steps[0]))
    monkeypatch.setattr(Graph, "consumers", counted(steps[1]))
    amounts = []
    for length in (20, 80):
        (tmp_path / "deep.py").write_text(DEEP.format(length=length))
        looks.clear()
        check_target(parse_target(str(tmp_path / "deep.py")))
        amounts.append(len(looks))
    assert amounts[1] < 6 * amounts[0], amounts
