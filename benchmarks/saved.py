"""What looking at saved tensors costs: a walk with and without them, the table, and the advice.

    python -m benchmarks.saved [BLOCKS] [REPEATS]

Builds a GPT of BLOCKS blocks (48 unless told), records it, and prints the best of REPEATS (7) for each step, side by
side in one run, with the most memory that Python allocated meanwhile. The last rows compare bytes with what pack hooks see.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import torch

import gradviz
from gradviz.memory.checkpoint import checkpoint_plan
from tests.memory.test_checkpoint import GPT


def main() -> int:
    """Print the table."""
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    torch.manual_seed(0)
    model, tokens = GPT(blocks), torch.randint(100, (4, 64))
    with gradviz.record() as recording:
        loss = model(tokens)
    known: dict[str, Any] = {"model": model, "params": {"tokens": tokens}}
    graph = recording.graph(loss, **known)
    held = gradviz.saved(graph).total.held
    steps: dict[str, Callable[[], object]] = {
        "walk(saved=False)": lambda: gradviz.walk(loss, **known, saved=False),
        "walk(saved=True)": lambda: gradviz.walk(loss, **known, saved=True),
        "saved(graph)": lambda: gradviz.saved(graph),
        "saved(graph, by='tensor')": lambda: gradviz.saved(graph, by="tensor"),
        "checkpoint advice, half": lambda: checkpoint_plan(graph, held // 2),
        "checkpoint advice, a tenth": lambda: checkpoint_plan(graph, held // 10),
    }
    print(
        f"{blocks} blocks, {len(graph.nodes)} nodes, {gradviz.saved(graph).totals.slots} saved tensors"
    )
    print("{:<28} {:>10} {:>8} {:>10}".format("step", "ms", "ratio", "peak KiB"))
    base = 0.0
    for name, step in steps.items():
        best, peak = measured(step, repeats)
        base = base or best
        print(
            f"{name:<28} {best * 1000:>10.2f} {best / base:>8.2f} {peak / 1024:>10.0f}"
        )
    print(f"activations, by gradviz {gradviz.saved(graph).totals.activations:>16,} B")
    print(f"activations, by pack hooks {packed(model, tokens):>13,} B")
    return 0


def measured(step: Callable[[], object], repeats: int) -> tuple[float, int]:
    """The least seconds of several runs, and the most bytes that Python allocated in one more."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    tracemalloc.start()
    step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return best, peak


def packed(model: torch.nn.Module, tokens: torch.Tensor) -> int:
    """Bytes that a forward pass hands to the pack hook, each storage once, without the model's own and the tokens."""
    outside = {
        tensor.untyped_storage()._cdata for tensor in (*model.parameters(), tokens)
    }
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(tokens)
    assert loss.requires_grad
    return sum(
        storage.nbytes()
        for identity, storage in storages.items()
        if identity not in outside
    )


if __name__ == "__main__":
    sys.exit(main())
