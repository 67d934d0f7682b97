"""Starts real ranks: torchrun on this machine, with gloo on the loopback interface, bounded in time."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.cli.scripts import environment, script
from tests.forks import REAL, Forks, ended

LONGEST = 150  # seconds that a launch may take

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


def torchrun(ranks: int, folder: Path, *arguments: object, text: str = NET) -> Done:
    """`torchrun -m gradviz ARGUMENTS` with `train.py` of this text in the folder. Whatever is left of it is ended."""
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone", "-m", "gradviz"]
    return _started([[*start, *map(str, arguments)]], [{}], folder, text)


def machines(count: int, folder: Path, *arguments: object, text: str = NET) -> Done:
    """So many launchers that find each other as those of several machines do, each with one rank."""
    port = _free_port()
    commands = [
        [
            *(
                "-m",
                "torch.distributed.run",
                "--nproc-per-node",
                "1",
                "--nnodes",
                str(count),
                "--node-rank",
                str(number),
            ),
            *("--master-addr", "127.0.0.1", "--master-port", port, "-m", "gradviz", *map(str, arguments)),
        ]
        for number in range(count)
    ]
    return _started(commands, [{}] * count, folder, text)


def launch(ranks: int, folder: Path, *arguments: object, text: str = NET) -> Done:
    """The same processes without torchrun around them, forked from one that has imported torch, which takes a third of the time.

    It ends none when another has died.
    """
    shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": _free_port(), "TMPDIR": str(folder)}
    words = ["-m", "gradviz", *map(str, arguments)]
    script(folder, text, "train.py")
    output = folder / "output"
    output.mkdir()
    asked = [(words, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    try:
        codes = ended(_forks().start(folder, asked, output=output), LONGEST)
    finally:
        left = _end_what_is_left(folder, 5)
    return _done(codes, output / "out", output / "err", left, folder)


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


def _started(commands: list[list[str]], own: list[dict[str, str]], folder: Path, text: str) -> Done:
    script(folder, text, "train.py")
    shared = {**environment(), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    out, err = folder / "stdout.txt", folder / "stderr.txt"
    with open(out, "w") as stdout, open(err, "w") as stderr:
        processes = [
            REAL(  # a torchrun whose workers are forks cannot be reached
                [sys.executable, *command], cwd=folder, env={**shared, **more}, stdout=stdout, stderr=stderr
            )
            for command, more in zip(commands, own)
        ]
        until, patience = time.monotonic() + LONGEST, 0.0
        try:
            codes = [process.wait(max(0.1, until - time.monotonic())) for process in processes]
            patience = 30
        finally:
            left = _end_what_is_left(folder, patience)
    return _done(codes, out, err, left, folder)


def _done(codes: list[int], out: Path, err: Path, left: tuple[int, ...], folder: Path) -> Done:
    assert not list(folder.glob("gradviz-*")), "the rendezvous's folder is left"
    return Done(next((code for code in codes if code), 0), out.read_text(), err.read_text(), left)


def _end_what_is_left(folder: Path, patience: float) -> tuple[int, ...]:
    """End the processes that work in this folder and do not end by themselves; those that did not."""
    left = _left(folder, patience)
    for process in left:
        os.kill(process, signal.SIGKILL)
    return left


def _left(folder: Path, patience: float) -> tuple[int, ...]:
    until = time.monotonic() + patience
    while True:
        found = tuple(_at_work(folder))
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def _at_work(folder: Path) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink() == folder:
                yield int(entry.name)
