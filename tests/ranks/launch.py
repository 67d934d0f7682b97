"""Starts real ranks: torchrun on this machine, with gloo on the loopback interface, bounded in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from tests.cli.scripts import environment, script

_MARK = "GRADVIZ_TEST_LAUNCH"

NET = """
import os
import sys
import torch
import torch.distributed as dist


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.extra = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x):
        h = self.first(x).relu()
        if "other-branch" in sys.argv and dist.get_rank() == dist.get_world_size() - 1:
            h = h * 2
        else:
            h = self.extra(h)
        return self.last(h)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(Net())
    if "raise" in sys.argv and dist.get_rank() == 1:
        raise ValueError("no data for me")
    if "die" in sys.argv and dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    dist.all_reduce(torch.ones(3))
    for step in range(2):
        loss = net(torch.ones(3, 4)).pow(2).mean()
        loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


class Done(NamedTuple):
    """How a launch ended. `left` are the processes that it left behind: there must be none."""

    code: int
    stdout: str
    stderr: str
    left: tuple[int, ...]


def launch(ranks: int, folder: Path, *arguments: object, text: str = NET, timeout: float = 60) -> Done:
    """`torchrun -m gradviz ARGUMENTS` with `train.py` of this text in the folder. Whatever is left of it is ended."""
    script(folder, text, "train.py")
    mark = uuid.uuid4().hex
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone", "-m", "gradviz"]
    process = subprocess.Popen(
        [sys.executable, *start, *map(str, arguments)],
        cwd=folder,
        env={**environment(), _MARK: mark, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        left = _left(mark, patience=0 if process.returncode is None else 5)
        for one in left:
            os.kill(one, signal.SIGKILL)
    assert not list(folder.glob("gradviz-*")), "the meeting's folder is left"
    return Done(process.returncode, stdout, stderr, left)


def _left(mark: str, patience: float) -> tuple[int, ...]:
    until = time.monotonic() + patience
    while True:
        found = tuple(_marked(mark))
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
