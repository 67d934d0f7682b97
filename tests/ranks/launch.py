"""Starts real ranks with gloo on the loopback interface: by torchrun, or forked, which takes a third of the time."""

from __future__ import annotations

import atexit
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.cli.scripts import environment, script
from tests.forks import REAL, Forks, ended

LONGEST = 150  # seconds that a launch may take

NET = """
import sys
import torch
import torch.distributed as dist


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.extra = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 1)
        if "unused" in sys.argv:
            self.spare = torch.nn.Linear(4, 4)

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
    net = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
    for step in range(9):
        loss = net(torch.ones(3, 4)).pow(2).mean()
        if "raise" in sys.argv and dist.get_rank() == 1:
            raise ValueError("no data for this rank")
        print("the script's own words")
        loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


class Done(NamedTuple):
    """How a launch ended: the exit code of each rank, or that of torchrun, and what all of them wrote."""

    codes: list[int]
    stdout: str
    stderr: str


def torchrun(ranks: int, folder: Path, *arguments: object, text: str = NET) -> Done:
    """`torchrun -m gradviz ARGUMENTS` with `train.py` of this text in the folder."""
    script(folder, text, "train.py")
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone", "-m", "gradviz"]
    process = REAL(  # a torchrun whose workers are forks cannot be reached
        [sys.executable, *start, *map(str, arguments)],
        cwd=folder,
        env={**environment(), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=LONGEST)
    finally:
        process.terminate()  # ends its workers, too
        process.wait()
    return Done([process.returncode], stdout, stderr)


def launch(ranks: int, folder: Path, *arguments: object, text: str = NET) -> Done:
    """The same processes without torchrun around them, forked from one that has imported torch. None ends the others."""
    shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    shared["MASTER_PORT"] = _free_port()
    words = ["-m", "gradviz", *map(str, arguments)]
    script(folder, text, "train.py")
    output = folder / "output"
    output.mkdir(exist_ok=True)
    asked = [(words, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    codes = ended(_forks().start(folder, asked, output=output), LONGEST)
    return Done(codes, (output / "out").read_text(), (output / "err").read_text())


@cache
def _forks() -> Forks:
    """The process that has imported torch, once for all tests of this one; it ends with it."""
    forks = Forks("gradviz.api", *(f"torch.distributed.{name}" for name in ("fsdp", "pipelining", "tensor.parallel")))
    atexit.register(forks.end)
    return forks


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])
