"""Blocks as vision models and transformers have them: what is inferred is what a recording notes, op for op."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.inference import agreement, both


def conv(size: int, out: int = 0) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(size, out or size, 3, padding=1), nn.BatchNorm2d(out or size), nn.ReLU())


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.right = conv(2)

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        n, c, h, w = x.shape
        joined = torch.cat([a, self.right(b)], 1)
        return joined.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class Dense(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer, self.drop = conv(size, 2), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.drop(self.layer(x))], 1)


class Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.down, self.act = nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.SiLU()
        self.up, self.gate = nn.Conv2d(2, 4, 1), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(self.act(self.down(self.pool(x)))))  # type: ignore[no-any-return]


class Inverted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.squeeze, self.last = conv(4), Squeeze(), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.squeeze(self.first(x)))
        return x + y if self.training else y  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(4, 12), nn.Linear(4, 4)
        self.attn_drop, self.proj_drop = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.attn_drop((q @ k.transpose(-2, -1) * 0.5).softmax(-1))
        return self.proj_drop(self.proj((weights @ v).transpose(1, 2).reshape(x.shape)))  # type: ignore[no-any-return]


class Fused(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        return self.proj_drop(self.proj(y.transpose(1, 2).reshape(x.shape)))  # type: ignore[no-any-return]


class Window(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.mlp = (
            nn.LayerNorm(4),
            Attention(),
            nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)),
        )

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        windows = self.norm(x).view(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        y = self.attn(windows).view(n, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        x = x + torch.roll(y, (1, 1), (1, 2))
        return x + self.mlp(x)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """The outer dropout comes after that of the inner module."""

    def __init__(self) -> None:
        super().__init__()
        self.ff = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 4))
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 4))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.inner(x))  # type: ignore[no-any-return]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.drop, self.head = nn.LSTM(4, 4, batch_first=True), nn.Dropout(0.1), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.lstm(x)
        return self.head(self.drop(h[:, -1]))  # type: ignore[no-any-return]


class Skipping(nn.Module):
    """Two branches, and a setting that says which; an early return; a dropout that is switched off."""

    def __init__(self, skips: bool) -> None:
        super().__init__()
        self.skips, self.layer = skips, nn.Linear(4, 4)
        self.off, self.drop = nn.Dropout(0.0), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.skips:
            return self.drop(self.layer(x)).exp()
        return x + self.drop(self.off(self.layer(x)))  # type: ignore[no-any-return]


class Annotated(nn.Module):
    """Names that an annotated assignment and `:=` bind, and annotations that look like operations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        def twice(h: dict[str, Tensor], layer: nn.Module) -> tuple[Tensor, ...]:
            return layer(h["x"]), layer(h["x"])

        layer: nn.Module = self.first
        parts: dict[str, Tensor] = {}
        if (act := self.act) is not None:
            parts["x"] = act(layer(x)).exp()
        one, two = twice(parts, self.second)
        last: list[Tensor] = [self.act(one).sin(), two]
        return torch.stack(last).sum(0)


class Unused(nn.Module):
    """Works with the weight of a layer that it never calls, and iterates over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.steps = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = F.linear(x.sin(), self.qkv.weight, self.qkv.bias).cos()
        for step in self.steps:
            x = step(x).square()
        return (self.gain * x).exp().sin()


class Stages(nn.Module):
    """Goes through a list of layers with activations between them, and calls one block twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 4)])
        self.ode = Slope()

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        for _ in range(3):
            x = x + self.ode(x) * 0.1
        return x


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x**2)  # type: ignore[no-any-return]


class Helped(nn.Module):
    """What methods, functions and the class above do is in the module, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.act = F.softplus

    def forward(self, x: Tensor) -> Tensor:
        return halved(self._both(x)).tanh()

    def _both(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x


def halved(x: Tensor) -> Tensor:
    return x.sigmoid() / 2


class Net(nn.Module):
    def __init__(self, stem: nn.Module, blocks: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks, self.last = stem, blocks, last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.stem(x)))  # type: ignore[no-any-return]


def of(*blocks: nn.Module, shape: tuple[int, ...] = (2, 4, 4, 4), last: nn.Module | None = None) -> Any:
    net = Net(nn.Linear(shape[-1], 4), nn.Sequential(*blocks), last or nn.Tanh())
    return lambda: (net, lambda: net(torch.randn(shape)).sum())


CASES = {
    "units that shuffle": of(Unit(), Unit(), Unit(), last=nn.Conv2d(4, 4, 1)),
    "dense blocks": of(Dense(4), Dense(6), Dense(8), last=nn.Conv2d(10, 2, 1)),
    "squeeze and excitation": of(Inverted(), Inverted(), last=nn.Conv2d(4, 2, 1)),
    "windows": of(Window(), Window(), last=nn.Linear(4, 2)),
    "attention of torch": of(Fused(), Fused(), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "attention": of(Attention(), Attention(), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "a dropout around": of(Layer(), Layer(), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "branches": of(Skipping(True), Skipping(False), Skipping(True), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "annotations": of(Annotated(), Annotated(), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "layers that are only read": of(Unused(), Unused(), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "a list, and one that is called again": of(Stages(), Stages(), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "methods and functions": of(Helped(), Helped(), shape=(2, 4, 4), last=nn.Linear(4, 2)),
    "a dropout after a recurrent layer": of(nn.Identity(), shape=(2, 5, 4), last=Tagger()),
}


@pytest.mark.parametrize("name", CASES)
def test_each_op_is_in_its_module(name: str) -> None:
    assert agreement(*both(CASES[name])).wrong == ()
