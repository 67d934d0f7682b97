"""What is run beside a recording: code that makes nodes, and code of all kinds that makes none.

Knows nothing of gradviz.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

_Data = torch.utils.data.Dataset

SCRIPT = """
import torch
from transformers import BertConfig, BertModel
small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100)
BertModel(BertConfig(**small))(torch.randint(0, 100, (2, 7))).last_hidden_state.sum().backward()
"""
"""A script whose time is its imports."""


def tiny_operations() -> None:
    """The worst case for whoever looks at every operation: one on one number, with a line of its own."""
    x = torch.ones(1, requires_grad=True)
    for _ in range(5000):
        x = x * 1.01
        x = x + 0.01


def bare_loop() -> None:
    """Nothing but Python's own numbers."""
    total = 0
    for number in range(200_000):
        total += number


def loop_with_calls() -> None:
    """A function of the user's at every turn."""

    def double(number: int) -> int:
        return number * 2

    for number in range(100_000):
        double(number)


def numpy_indexing() -> None:
    """An array read and written entry by entry."""
    table = np.zeros(100)
    for number in range(100_000):
        table[number % 100] = table[(number + 1) % 100] + 1.0


class Rows(_Data[torch.Tensor]):
    """A dataset of the user's own."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> torch.Tensor:
        row = np.full(16, index, dtype=np.float32)
        row[3] += 1
        return torch.from_numpy(row)


def data_loader() -> None:
    """Batches made in this process, of a dataset of the user's and of one of torch's."""
    for _ in DataLoader(Rows(), batch_size=20):
        pass
    for _ in DataLoader(TensorDataset(torch.arange(4000.0)), batch_size=20):
        pass


def training(width: int) -> Callable[[], None]:
    """Steps of SGD with a loader: a stack of linear layers, norms and activations."""
    layers = [
        (torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU())
        for _ in range(4)
    ]
    net = torch.nn.Sequential(*[part for layer in layers for part in layer])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.ones(640, width)), batch_size=64)

    def steps() -> None:
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = (net(batch) - batch).pow(2).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return steps


def commands(script: str) -> dict[str, list[str]]:
    """A script under plain Python, and under gradviz until its `backward()`."""
    return {
        "python script.py": [sys.executable, script],
        "gradviz tree": [sys.executable, "-m", "gradviz", "tree", script],
    }
