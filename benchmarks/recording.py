"""What recording costs while a model runs: the forward pass alone, inside gradviz.record(), and by tools that run it themselves.

    python -m benchmarks.recording            # --rounds 20 for steadier numbers

The rows of one model are measured in turn, round after round, in one process and with one thread, so that other work on
the machine meets all of them. Ratios are of the fastest rounds, in processor seconds. Reading the graph afterwards is no
part of it, except for torchview and torchlens, which do both in one.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

import gradviz
from benchmarks.models import Built, Script, build, gpt, lstm
from benchmarks.tools import TOOLS

PEERS = ("torchview", "torchlens")
RESNET_50 = ("--depth", "50", "--width", "64", "--size", "128", "--batch", "4")  # as wide as in the paper
MODELS = {
    "ResNet-50, 4 pictures of 128 x 128": Script("resnet.py", RESNET_50, "pictures"),
    "GPT, 12 blocks, 32 wide": gpt(12),
    "LSTM, 200 steps, 8 wide": lstm(200),
}


class Case(NamedTuple):
    """A forward pass, and the model and inputs for tools that run it themselves (None: there is no model)."""

    name: str
    forward: Callable[[], torch.Tensor]
    built: Built | None = None


def cases() -> Iterator[Case]:
    """Each is built only when it is its turn."""
    for name, script in MODELS.items():
        built = build(script)
        yield Case(name, lambda built=built: built.model(built.inputs), built)  # type: ignore[misc]
    yield Case("10,000 tiny operations", tiny_operations)
    yield Case("100,000 lines without torch", no_torch)


def tiny_operations() -> torch.Tensor:
    """The worst case for whoever looks at every line: an operation on one number, with a line of its own."""
    x = torch.ones(1, requires_grad=True)
    for _ in range(5000):
        x = x * 1.01
        x = x + 0.01
    return x


def no_torch() -> torch.Tensor:
    """Plain Python of the user's, which up to Python 3.11 is traced line by line, too."""
    total = 0
    for number in range(50_000):
        total += number
    return torch.tensor(float(total))


def ways(case: Case) -> dict[str, Callable[[], Any]]:
    """What is compared, by name. A peer that is not installed is left out."""

    def recorded() -> torch.Tensor:
        with gradviz.record():
            return case.forward()

    found: dict[str, Callable[[], Any]] = {"forward alone": case.forward, "gradviz.record()": recorded}
    if case.built is not None:
        for name in PEERS:
            if importlib.util.find_spec(name) is not None:
                found[name] = lambda built=case.built, name=name: TOOLS[name].capture(built)  # type: ignore[misc]
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what recording costs while a model runs")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in PEERS:
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed")
    for case in cases():
        best = fastest(ways(case), rounds)
        print(case.name)
        for name, seconds in best.items():
            print(f"  {name:<18}{seconds * 1000:10.1f} ms   x{seconds / best['forward alone']:.2f}")


if __name__ == "__main__":
    main()
