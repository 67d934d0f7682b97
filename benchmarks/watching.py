"""What `gradviz.watch` costs a training run: its steps, as a ratio to the same steps alone, and its looks, as a part of 100 steps.

    python -m benchmarks.watching            # --rounds 20 for steadier numbers

Steps alone and watched run in turn, in one process and with one thread: with their numbers, and only counted, as most steps are
where numbers would take more than their share. Ratios are of the fastest steps. A look is what its steps take longer than others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import NamedTuple
from unittest.mock import patch

import torch
from torch import nn

import gradviz
from benchmarks.models import Script, build

EVERY = 100
"""Steps between two looks, by default."""
_SPAN = 3  # steps of a look


class Training(NamedTuple):
    """A model, its optimizer, and one step of training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], None]


def training(model: nn.Module, inputs: torch.Tensor) -> Training:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).float().square().mean().backward()
        optimizer.step()

    return Training(model, optimizer, step)


def encoder(layers: int, width: int, tokens: int) -> Training:
    """Blocks of a transformer."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    return training(nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), torch.randn(4, tokens, width))


def perceptron(width: int) -> Training:
    layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.ReLU())]
    return training(nn.Sequential(*layers), torch.randn(64, width))


def resnet() -> Training:
    built = build(Script("resnet.py", ("--depth", "50", "--width", "64", "--size", "128", "--batch", "4"), "pictures"))
    return training(built.model, built.inputs)


CASES: dict[str, Callable[[], Training]] = {
    "4 layers, 64 wide, batches of 64": lambda: perceptron(64),
    "4 layers, 1024 wide, batches of 64": lambda: perceptron(1024),
    "transformer, 12 blocks, 256 wide, 4 x 128 tokens": lambda: encoder(12, 256, 128),
    "ResNet-50, 4 pictures of 128 x 128": resnet,
}


def seconds(step: Callable[[], None], count: int) -> list[float]:
    """Seconds of each of so many steps."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return found


def measured(case: Training, rounds: int, steps: int) -> tuple[float, float, float, float]:
    """Seconds of a step alone, of one with numbers, of one that is only counted, and those that a look adds."""
    alone, noted, counted, looks = [], [], [], []
    for _ in range(rounds + 1):
        alone.append(min(seconds(case.step, steps)))
        with limited(inf), gradviz.watch(case.model, case.optimizer, every=2 * _SPAN):
            seconds(case.step, 2 * _SPAN - 1)
            looks.append(sum(seconds(case.step, _SPAN)))
        for free, found in (inf, noted), (-inf, counted):
            with limited(free), gradviz.watch(case.model, case.optimizer, every=10**9):
                seconds(case.step, _SPAN)
                found.append(min(seconds(case.step, steps)))
    return min(alone[1:]), min(noted[1:]), min(counted[1:]), min(looks[1:]) - _SPAN * min(alone[1:])


@contextmanager
def limited(free: float) -> Iterator[None]:
    """Inside, a watch may take so many seconds for numbers."""
    with patch("gradviz.watching.steps.FREE", free), patch("gradviz.watching.watch._FREE", inf):
        yield


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what watching adds to a training run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="WORD", default="", help="only cases with this word in their name")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, build_case in CASES.items():
        if given.only in name:
            alone, noted, counted, look = measured(build_case(), given.rounds, 8)
            print(
                f"{name}\n  step {alone * 1000:.2f} ms, with numbers x{noted / alone:.4f}, only counted x{counted / alone:.4f}"
            )
            print(f"  look {look * 1000:.1f} ms, {look / (EVERY * alone):.2%} of {EVERY} steps")


if __name__ == "__main__":
    main()
