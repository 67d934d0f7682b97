"""A long run under `check` keeps no more than a short one: measured over 5,000 steps, by the script itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
