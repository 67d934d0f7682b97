"""Graphs whose gradients are checked against the engine, each made anew by a function without arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class WithNumber(torch.autograd.Function):
    """Takes arguments that are no tensors, before and between tensors, one of which needs no gradient."""

    @staticmethod
    def forward(ctx: Any, number: int, x: Tensor, constant: Tensor, text: str, y: Tensor) -> Tensor:
        ctx.number = number
        return x * number + y + constant

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, gradient * ctx.number, None, None, gradient * 2


class TwoOutputs(torch.autograd.Function):
    """Says that it wants None, not zeros, where no gradient comes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.exp(), x.sin()

    @staticmethod
    def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Any:
        (x,) = ctx.saved_tensors
        found = torch.zeros_like(x)
        if first is not None:
            found = found + first * x.exp()
        if second is not None:
            found = found + second * x.cos()
        return found


class OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


def _leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def mlp() -> Tensor:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    return nn.functional.cross_entropy(net(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1]))


def conv_net() -> Tensor:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )
    return net(torch.randn(2, 3, 8, 8)).square().mean()


def transformer_layer() -> Tensor:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(torch.randn(2, 3, 8)).sin().sum()


def lstm() -> Tensor:
    out, (h, _) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(torch.randn(5, 2, 3))
    return out.sum() + (h * h).sum()


def lstm_unrolled() -> Tensor:
    out, _ = nn.LSTM(3, 4).double()(torch.randn(6, 2, 3, dtype=torch.float64))
    return out.square().sum()


def double_backward() -> Tensor:
    x = _leaf(3)
    (first,) = torch.autograd.grad((x**3 * x.exp()).sum(), x, create_graph=True)
    return (first * first).sum()


def custom_with_number() -> Tensor:
    x, y = _leaf(3), _leaf(3)
    return (WithNumber.apply(3, x, torch.ones(3), "text", y) * x).sum()


def custom_two_outputs() -> Tensor:
    x = _leaf(3)
    first, _ = TwoOutputs.apply(x * 2)
    both = TwoOutputs.apply(x)
    return (first * both[1]).sum() + both[0].sum()


def custom_once() -> Tensor:
    return (OnceOnly.apply(_leaf(3)) ** 2).sum()


def custom_in_double_backward() -> Tensor:
    x = _leaf(3)
    (first,) = torch.autograd.grad(TwoOutputs.apply(x * x)[0].sum(), x, create_graph=True)
    return first.square().sum()


def sparse_embedding() -> Tensor:
    table = nn.Embedding(6, 3, sparse=True)
    return (table(torch.tensor([1, 1, 4])) * table(torch.tensor([0, 1, 5]))).sum()


def sparse_meets_dense() -> Tensor:
    """One weight as a sparse embedding and as a dense matrix."""
    table = nn.Embedding(6, 3, sparse=True)
    return table(torch.tensor([1, 1])).sum() * (torch.randn(2, 3) @ table.weight.T).sum()


def complex_numbers() -> Tensor:
    x = _leaf(4)
    y = torch.view_as_complex(torch.stack((x, x.sin()), -1)) * torch.fft.fft(x)
    return (y * y.conj()).real.sum() + y.abs().sum()


def in_place() -> Tensor:
    base = _leaf(4, 3) * 1
    base[1:3] = _leaf(2, 3)
    base[0].mul_(2)
    base.add_(1)
    return (base * base).sum()


def many_outputs() -> Tensor:
    first, _, last = _leaf(6, 2).split(2)
    values, _ = first.sort(0)
    return (values * last.unbind(0)[0]).sum()


def broadcast_and_cast() -> Tensor:
    x, y = _leaf(3, 1), _leaf(4, dtype=torch.float64)
    return (x * y + x.half().sum() + y.bfloat16()).sum()


def shared_weight() -> Tensor:
    cell = nn.LSTMCell(3, 4)
    state = (torch.zeros(2, 4), torch.zeros(2, 4))
    for step in torch.randn(5, 2, 3):
        state = cell(step, state)
    return state[0].sum()


def not_used() -> Tensor:
    """A part through which no gradient comes: nothing of its backward may be called with nothing."""
    x = _leaf(3)
    kept, dropped = TwoOutputs.apply(x.exp())
    return kept.sum() + dropped.sum().detach()


def many_leaves() -> Tensor:
    """Many leaves ready at the same moment."""
    return torch.cat([_leaf(i) for i in range(1, 12)]).square().sum()


def checkpointed() -> Tensor:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2))
    return checkpoint(net, _leaf(2, 3), use_reentrant=False).sum()


CASES: dict[str, Callable[[], Tensor]] = {
    case.__name__: case
    for case in (
        mlp,
        conv_net,
        transformer_layer,
        lstm,
        lstm_unrolled,
        double_backward,
        custom_with_number,
        custom_two_outputs,
        custom_once,
        custom_in_double_backward,
        sparse_embedding,
        sparse_meets_dense,
        complex_numbers,
        in_place,
        many_outputs,
        broadcast_and_cast,
        shared_weight,
        not_used,
        many_leaves,
        checkpointed,
    )
}
