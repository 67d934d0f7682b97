"""How long a walk takes and how much memory it needs, as ratios measured side by side in one run.

    python -m benchmarks.walk            # all graphs
    python -m benchmarks.walk chain gpt  # some
    python -m benchmarks.walk million    # a chain of 1,000,000 operations, to its walk and to its SVG, each in a process of its own

Bare: a loop over `next_functions` with a set, on an equal graph that nobody touched before (cold) or again on the same one
(warm). Every number is the best of three, each on a fresh graph. The collector is off for the bare loop too; for the million it is
also measured with the collector on, as anybody would write that loop. Questions: the bare loop that also asks torch all that a
walk asks, and keeps nothing.
"""

from __future__ import annotations

import gc
import math
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.walker.walk import capture

ROUNDS = 3
MILLION = 1_000_000


def chain(steps: int) -> torch.Tensor:
    y = torch.ones(3, requires_grad=True) * 1.0
    for _ in range(steps):
        y = torch.tanh(y)
    return y


def scaled_chain(steps: int) -> torch.Tensor:
    y = torch.ones(3, requires_grad=True) * 1.0
    for _ in range(steps):
        y = y * 1.0001
    return y


def lstm(steps: int) -> torch.Tensor:
    cell = torch.nn.LSTMCell(8, 8)
    state = torch.zeros(2, 8), torch.zeros(2, 8)
    for _ in range(steps):
        state = cell(torch.randn(2, 8), state)
    return state[0].sum()


def gpt(blocks: int) -> torch.Tensor:
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 32, dropout=0.0, batch_first=True, norm_first=True
    )
    model = torch.nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
    made: torch.Tensor = model(torch.randn(1, 4, 16)).sum()
    return made


GRAPHS: dict[str, Callable[[], torch.Tensor]] = {
    "chain": lambda: chain(100_000),
    "scaled": lambda: scaled_chain(100_000),
    "lstm": lambda: lstm(3_000),
    "gpt": lambda: gpt(48),
}


def bare(y: torch.Tensor) -> int:
    seen = {y.grad_fn}
    stack = [y.grad_fn]
    while stack:
        node = stack.pop()
        assert node is not None
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)
    return len(seen)


def questions(y: torch.Tensor) -> int:
    """What a walk with saved tensors has to ask torch about a chain of `tanh`, keeping none of the answers: its floor."""
    seen = {y.grad_fn}
    stack = [y.grad_fn]
    while stack:
        node: Any = stack.pop()
        node._sequence_nr()
        (made,) = node._input_metadata
        made.shape, made.dtype, made.device  # noqa: B018
        saved = getattr(node, "_raw_saved_result", None)
        if saved is not None and saved.unpack_hook is None:
            kept = saved.data
            memory = kept.untyped_storage()
            (
                kept._version,
                kept._is_view(),
                kept.shape,
                kept.dtype,
                kept.device,
                memory._cdata,
                memory.nbytes(),
            )
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)
    return len(seen)


def seconds(
    make: Callable[[], torch.Tensor],
    run: Callable[[torch.Tensor], Any],
    *,
    warm: bool = False,
) -> float:
    """The best of some runs. The graph is walked once with keepers before it is deleted, or the process would crash."""
    best = math.inf
    for _ in range(ROUNDS):
        y = make()
        if warm:
            run(y)
        gc.collect()
        gc.disable()
        start = time.process_time()
        made = run(y)
        best = min(best, time.process_time() - start)
        gc.enable()
        del made
        capture(y, saved=False)
        del y
    return best


def compare(name: str) -> None:
    make = GRAPHS[name]
    nodes = bare(y := make())
    capture(y, saved=False)
    del y
    runs: dict[str, Callable[[torch.Tensor], Any]] = {
        "bare": bare,
        "walk(saved=False)": lambda y: capture(y, saved=False).graph,
        "walk(saved=True)": capture,
    }
    print(f"{name}: {nodes:,} nodes")
    for warm in (False, True):
        times = {label: seconds(make, run, warm=warm) for label, run in runs.items()}
        told = ", ".join(
            f"{label} {1e6 * t / nodes:.2f} us/node ({t / times['bare']:.1f}x)"
            for label, t in times.items()
        )
        print(f"  {'warm' if warm else 'cold'}: {told}")


def against_torchviz() -> None:
    """Walk and DOT against torchviz.make_dot, on a graph that torchviz's recursion can still manage."""
    try:
        from torchviz import make_dot
    except ImportError:
        print("torchviz is not installed")
        return
    whole = Options.of({"depth": "all"})

    def ours(y: torch.Tensor) -> Any:
        return render(capture(y, saved=False).graph, "dot", whole)

    for name, steps in (("chain", 5_000), ("lstm", 300)):
        make = {"chain": chain, "lstm": lstm}[name]
        times = [
            seconds(partial(make, steps), run)
            for run in (ours, lambda y: make_dot(y).source)
        ]
        print(
            f"{name} of {steps:,} steps to DOT: gradviz {times[0]:.3f} s, torchviz {times[1]:.3f} s ({times[0] / times[1]:.2f}x)"
        )


_MILLION = """
import gc, os, sys, time
from benchmarks.walk import bare, chain, questions
from gradviz.walker.walk import capture
runs = {"bare": bare, "bare, collector off": bare, "questions": questions, "walk": capture}
runs["saved=False"] = lambda y: capture(y, saved=False).graph
capture(chain(100))
y = chain(int(sys.argv[2]))
gc.collect()
if sys.argv[1].endswith("off"):
    gc.disable()
start = time.process_time()
made = runs[sys.argv[1]](y)
print(time.process_time() - start)
sys.stdout.flush()
os._exit(0)  # a graph that a bare loop has touched cannot be deleted
"""


_PICTURE = """
import os, resource, sys, tempfile, time
from benchmarks.walk import chain
import gradviz
y = chain(int(sys.argv[2]))
start = time.process_time()
with tempfile.TemporaryDirectory() as folder:
    if sys.argv[1] != "the chain alone":
        options = {"depth": "all"} if sys.argv[1] == "full SVG" else {}
        gradviz.walk(y).save(os.path.join(folder, "chain.svg"), **options)
        print(f"{time.process_time() - start:.0f} s from the loss to the file", end=", ")
print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
sys.stdout.flush()
os._exit(0)
"""


def million() -> None:
    """Processor seconds of the chain of a million, the walks in turn so that a busy machine slows all of them; then pictures."""
    labels = ("bare", "bare, collector off", "questions", "saved=False", "walk")
    best = dict.fromkeys(labels, math.inf)
    for _ in range(ROUNDS):
        for label in labels:
            command = [sys.executable, "-c", _MILLION, label, str(MILLION)]
            told = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout
            best[label] = min(best[label], float(told))
    print(f"chain of {MILLION:,} nodes, each walk in a process of its own:")
    for label, seconds_of in best.items():
        on, off = (f"{seconds_of / best[bare]:.1f}x" for bare in labels[:2])
        print(
            f"  {label}: {seconds_of:.2f} s, {on} bare, {off} bare with the collector off"
        )
    for label in ("the chain alone", "full SVG", "folded SVG"):
        command = [sys.executable, "-c", _PICTURE, label, str(MILLION)]
        print(
            f"  {label}: {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}"
        )


_MEMORY = """
import gc, resource, sys
from benchmarks.walk import chain, scaled_chain
from gradviz.walker.walk import capture
make = {"chain": chain, "scaled": scaled_chain}[sys.argv[1]]
capture(make(100))
y = make(int(sys.argv[2]))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
graph = capture(y, saved=sys.argv[3] == "True").graph
print((peak() - before) / len(graph.nodes))
"""


def memory() -> None:
    """Peak above the graph itself, per node, in a process of its own (a peak never comes down again)."""
    for name in ("chain", "scaled"):
        for saved in (False, True):
            command = [sys.executable, "-c", _MEMORY, name, str(MILLION), str(saved)]
            told = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout
            print(
                f"{name} of {MILLION:,} nodes, saved={saved}: peak {float(told):.0f} bytes a node above the graph"
            )


def main() -> None:
    print(
        f"torch {torch.__version__}, Python {sys.version.split()[0]}, limit {resource.getrlimit(resource.RLIMIT_STACK)[0]}"
    )
    for name in sys.argv[1:] or GRAPHS:
        million() if name == "million" else compare(name)
    if not sys.argv[1:]:
        million()
        against_torchviz()
        memory()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.setrecursionlimit(1_000_000)
    threading.stack_size(1 << 30)  # torchviz is recursive
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
