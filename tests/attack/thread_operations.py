"""Several threads use one leaf while a recording is open. As a script: names of what each thread repeats; else eight threads.

    GRADVIZ_SOAK=1200 python tests/attack/thread_operations.py      # for 20 minutes; it ends with a traceback where it stands still

The leaf is held by C++ beside Python, as DDP holds its parameters: torch 2.13 waits for ever by itself where only Python holds it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
import time
from collections.abc import Callable

import torch

import gradviz


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return gradients[0], gradients[0]


class Cycle:
    """Uses the leaf when the collector finds it."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        w[0]


w = torch.ones(4, 4, requires_grad=True)
also_held = torch._C.ScriptList([w])  # type: ignore[attr-defined]
x = torch.ones(4, 4)
own = torch.ones(4, 4, requires_grad=True)  # a graph of `w` would keep what the threads have to make anew
layer = torch.nn.Linear(4, 4)
layer.weight = torch.nn.Parameter(w.detach())
also_held_too = torch._C.ScriptList([layer.weight, layer.bias])  # type: ignore[attr-defined]


def collect() -> None:
    Cycle()
    if next(ticks) % 50 == 0:
        gc.collect()


ticks = iter(range(sys.maxsize))
OPERATIONS: dict[str, Callable[[], object]] = {
    "multiply": lambda: w * 2,
    "index": lambda: w[0],
    "transpose": lambda: w.T,
    "getters": lambda: (w.mT, w.H, w.grad, w.is_leaf, w.grad_fn, w.shape),
    "iterate": lambda: list(w),
    "function": lambda: Scaled.apply(x, w),
    "layer": lambda: layer(x),
    "layer index": lambda: layer.weight[0],
    "backward": lambda: (w[0] * 2).sum().backward(),
    "gradient": lambda: torch.autograd.grad((w.T * 2).sum(), w),
    "collect": collect,
}


def run(names: list[str], seconds: float) -> int:
    """What the threads did in all."""
    counts = [0] * len(names)
    until = time.monotonic() + seconds

    together = threading.Barrier(len(names))  # so that they meet at the leaf

    def work(number: int, operation: Callable[[], object]) -> None:
        try:
            while time.monotonic() < until:
                together.wait()
                operation()
                counts[number] += 1
        except threading.BrokenBarrierError:
            pass
        finally:
            together.abort()

    threads = [threading.Thread(target=work, args=(i, OPERATIONS[name])) for i, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def main() -> None:
    seconds = float(os.environ.get("GRADVIZ_SOAK", "1.5"))
    faulthandler.dump_traceback_later(seconds + 60, exit=True)
    sys.setswitchinterval(1e-5)
    names = sys.argv[1:] or ["multiply", "index", "transpose", "getters", "function", "layer", "gradient", "collect"]
    began = time.monotonic()
    total = rounds = 0
    while rounds == 0 or time.monotonic() - began < seconds:
        with gradviz.record() as recording:  # again and again, so that threads begin and end in it, too
            before = own.exp()
            total += run(names, min(seconds, 5.0))
            after = own.sin()
        graph = recording.graph([before, after])
        assert len(graph.nodes) == 3, graph.nodes
        rounds += 1
    print(f"{total} operations of {len(names)} threads in {rounds} recordings, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
