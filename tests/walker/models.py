"""Small models of every kind that a recording must cope with, each as a function that builds and runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Build = Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Mixed(nn.Module):
    """Operators, methods, in-place operations, indexing, functional calls, a custom Function."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.inner(x)) * self.scale
        hidden = F.dropout(hidden, 0.5)
        hidden[0] += 1
        hidden = hidden.clone()
        hidden.mul_(2)
        parts = [Square.apply(part) for part in hidden.split(2, dim=1)]
        joined = torch.cat(parts, dim=1)
        return (lambda y: -y)(joined) + joined[:, [0, 1, 2, 3]]


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def mixed() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    net, x = Mixed(), torch.randn(3, 4)
    return net, lambda: net(x).sum()


def checkpointed() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    net, x = Checkpointed(), torch.randn(3, 4, requires_grad=True)
    return net, lambda: net(x).pow(2).sum()


def recurrent() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    cell, x = nn.LSTMCell(3, 3), torch.randn(2, 3)

    def run() -> torch.Tensor:
        state = (torch.zeros(2, 3), torch.zeros(2, 3))
        for _ in range(4):
            state = cell(x, state)
        return state[0].sum()

    return cell, run


def attention() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    net, x = nn.TransformerEncoder(layer, 2), torch.randn(2, 5, 8)
    return net, lambda: net(x).mean()


def convolution() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    x, target = torch.randn(2, 3, 6, 6), torch.tensor([0, 1])
    loss = nn.CrossEntropyLoss()
    net(x)  # gives the lazy layer its shape
    return net, lambda: loss(net(x), target)


def whole_lstm() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    net, x = nn.LSTM(3, 4, num_layers=2), torch.randn(5, 2, 3)
    return net, lambda: net(x)[0].sum()


MODELS: dict[str, Build] = {
    "mixed": mixed,
    "checkpointed": checkpointed,
    "recurrent": recurrent,
    "attention": attention,
    "convolution": convolution,
    "whole_lstm": whole_lstm,
}
