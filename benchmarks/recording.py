"""What recording costs while code runs: alone, inside gradviz.record(), and models also by tools that run them themselves.

    python -m benchmarks.recording            # --rounds 20 for steadier numbers

The rows of one model are measured in turn, round after round, in one process and with one thread, so that other work on
the machine meets all of them. Ratios are of the fastest rounds, in processor seconds. Reading the graph afterwards is no
part of it, except for torchview and torchlens, which do both in one.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import gradviz
from benchmarks import workloads
from benchmarks.models import Built, Script, build, gpt, lstm
from benchmarks.tools import TOOLS

PEERS = ("torchview", "torchlens")
RESNET_50 = (
    "--depth",
    "50",
    "--width",
    "64",
    "--size",
    "128",
    "--batch",
    "4",
)  # as wide as in the paper
MODELS = {
    "ResNet-50, 4 pictures of 128 x 128": Script(
        "samples/resnet.py", RESNET_50, "pictures"
    ),
    "GPT, 12 blocks, 32 wide": gpt(12),
    "LSTM, 200 steps, 8 wide": lstm(200),
}


class Case(NamedTuple):
    """What is run, and the model and inputs for tools that run it themselves (None: there is no model)."""

    name: str
    forward: Callable[[], object]
    built: Built | None = None


def cases() -> Iterator[Case]:
    """Each is built only when it is its turn."""
    for name, script in MODELS.items():
        built = build(script)
        yield Case(name, lambda built=built: built.model(built.inputs), built)  # type: ignore[misc]
    yield Case("10,000 operations on one number", workloads.tiny_operations)
    yield Case("training, 4 layers, 64 wide, batches of 64", workloads.training(64))
    yield Case("training, 4 layers, 256 wide, batches of 64", workloads.training(256))
    yield Case("a bare loop", workloads.bare_loop)
    yield Case("a loop with calls", workloads.loop_with_calls)
    yield Case("numpy indexing in a loop", workloads.numpy_indexing)
    yield Case("DataLoader in process", workloads.data_loader)


def ways(case: Case) -> dict[str, Callable[[], Any]]:
    """What is compared, by name. A peer that is not installed is left out."""

    def recorded() -> object:
        with gradviz.record():
            return case.forward()

    found: dict[str, Callable[[], Any]] = {
        "alone": case.forward,
        "gradviz.record()": recorded,
    }
    if case.built is not None:
        for name in PEERS:
            if importlib.util.find_spec(name) is not None:
                found[name] = lambda built=case.built, name=name: TOOLS[name].capture(
                    built
                )  # type: ignore[misc]
    return found


def fastest(compared: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest round of each, in turn. A first round warms up and does not count."""
    best = dict.fromkeys(compared, float("inf"))
    for turn in range(rounds + 1):
        for name, run in compared.items():
            begin = time.process_time()
            run()
            if turn:
                best[name] = min(best[name], time.process_time() - begin)
    return best


def scripts(rounds: int) -> dict[str, float]:
    """The same for a script whose time is its imports, in processes of their own."""
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(workloads.SCRIPT)
        for _ in range(rounds + 1):
            for name, command in workloads.commands(str(path)).items():
                begin = _children()
                subprocess.run(
                    command,
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                best[name] = min(best.get(name, float("inf")), _children() - begin)
    return best


FIRST = """
import time
import torch
from benchmarks.models import Script, build

torch.set_num_threads(1)
built = build(Script("samples/resnet.py", {arguments}, "pictures"))
built.model(built.inputs)
begin = time.process_time()
built.model(built.inputs)
alone = time.process_time()
import gradviz
with gradviz.record():
    built.model(built.inputs)
print(alone - begin, time.process_time() - alone)
"""
"""A forward alone, and the first one of a process that is recorded."""


def first_in_process(rounds: int) -> dict[str, float]:
    """Seconds of the fastest of some processes: what a recording costs once, its imports included."""
    best = {"alone": float("inf"), "gradviz.record()": float("inf")}
    script = FIRST.format(arguments=RESNET_50)
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True
        )
        for name, seconds in zip(best, map(float, done.stdout.split())):
            best[name] = min(best[name], seconds)
    return best


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def shown(name: str, best: dict[str, float]) -> None:
    """Print the rows of one case; ratios are to the first."""
    print(name)
    alone = next(iter(best.values()))
    for way, seconds in best.items():
        print(f"  {way:<18}{seconds * 1000:10.1f} ms   x{seconds / alone:.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description="what recording costs while a model runs"
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in PEERS:
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed")
    for case in cases():
        shown(case.name, fastest(ways(case), rounds))
    shown("ResNet-50, the first forward that is recorded", first_in_process(rounds))
    if importlib.util.find_spec("transformers") is None:
        print("transformers is not installed")
        return
    shown("a script that imports transformers", scripts(min(rounds, 3)))


if __name__ == "__main__":
    main()
