"""What `gradviz.check` costs, as a multiple of `gradviz.walk` on the same graph.

    python -m benchmarks.check [REPEATS]

Prints the best of REPEATS (7) for each, side by side in one run. Without `values` the ratio is to stay below 2.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import gradviz


def chain(length: int) -> tuple[torch.Tensor, nn.Module]:
    """A recurrence of one layer."""
    net = nn.Linear(4, 4)
    x = torch.ones(1, 4)
    for _ in range(length // 4):
        x = torch.tanh(net(x))
    return x.sum(), net


def layers(count: int) -> tuple[torch.Tensor, nn.Module]:
    """Many modules, each with its own parameters."""
    net = nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())))
    return net(torch.ones(1, 4)).sum(), net


def best(step: Callable[[], object], repeats: int) -> float:
    """The least seconds of several runs."""
    found = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        found = min(found, time.perf_counter() - start)
    return found


def main() -> int:
    """Print the table."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'graph':<24} {'nodes':>9} {'walk ms':>9} {'check ms':>9} {'ratio':>6}")
    for name, (loss, net) in {
        "recurrence": chain(1_000),
        "long recurrence": chain(200_000),
        "60 layers": layers(20),
        "3000 layers": layers(1_000),
    }.items():
        nodes = len(gradviz.walk(loss, model=net).nodes)
        walk = best(lambda: gradviz.walk(loss, model=net), repeats)  # noqa: B023 -- called at once
        check = best(lambda: gradviz.check(loss, model=net), repeats)  # noqa: B023
        print(f"{name:<24} {nodes:>9,} {walk * 1000:>9.2f} {check * 1000:>9.2f} {check / walk:>6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
