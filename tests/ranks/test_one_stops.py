"""One of two ranks under torchrun hangs, dies or takes another way: the first finding says so, and never blames who waited."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.ranks.launch import torchrun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="starts processes and looks for those left in /proc"),
]

TRAINING = """
import contextlib, os, signal, sys, time
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

mode = sys.argv[1]


def stop():
    if mode == "raise":
        raise RuntimeError("no more data")
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "exit":
        os._exit(0)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        time.sleep(6 if mode == "hang" else 0)
    os.kill(os.getppid(), signal.SIGTERM)  # as a scheduler ends the launcher
    time.sleep(1000)


dist.init_process_group("gloo")
rank = dist.get_rank()
net = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
with Join([net]) if mode == "join" else contextlib.nullcontext():
    for step in range(4 + rank * (mode == "join")):
        if rank == 1 and step == 2 and mode in ("raise", "kill", "exit", "hang", "spin"):
            stop()
        rows = 3 + rank * (mode == "uneven")
        y = net(torch.randn(rows, 4))
        if mode == "differ" and rank == 1:
            y = y.sin()
        loss = y.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if mode == "extra" and rank == 1 and step == 1:
            dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""

FIRST = {
    "raise": "error: rank 1 raised RuntimeError: no more data",
    "kill": "error: rank 1 was killed (SIGKILL)",
    "exit": "error: rank 1 died without a word",
    "hang": "error: rank 1 did not make its next call before the launch was ended",
    "spin": "error: rank 1 did not make its next call before the launch was ended",
    "differ": "warning: rank 1 takes another branch than rank 0",
    "extra": "error: rank 1 ended in all_reduce, which rank 0 did not call",
    "uneven": "Nothing found.",
    "join": "Nothing found.",
}


OR_ELSE = {
    "extra": "error: rank 1 was ended by SIGABRT in all_reduce",  # gloo met another collective first
    "kill": FIRST["exit"],  # the launcher collected the process first, and with it the signal
}
LONG = ("exit", "spin", "extra", "uneven")
"""Ways to stop that are much like others."""


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.long) if mode in LONG else mode for mode in FIRST]
)
def test_the_first_finding(mode: str, tmp_path: Path) -> None:
    done = torchrun(2, tmp_path, "check", "train.py", "--ranks-wait", 2, "--", mode, text=TRAINING)
    first = " ".join(done.stdout.partition("where:")[0].split())
    assert FIRST[mode] in first or OR_ELSE.get(mode, FIRST[mode]) in first, done.stdout + done.stderr
    assert done.left == ()
    if mode in ("hang", "spin"):  # said while they still ran
        assert "Still waiting: rank 0 waits in backward at train.py:" in done.stderr
        assert "rank 1 after backward at train.py:" in done.stderr
