"""Own autograd Functions: straight-through, one that counts its calls, one that warns, one with marks and non-tensors."""

import warnings
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

torch.manual_seed(0)
calls = {"forward": 0, "backward": 0}


class Round(Function):
    @staticmethod
    def forward(ctx, x):
        calls["forward"] += 1
        ctx.mark_non_differentiable()
        return x.round()

    @staticmethod
    def backward(ctx, g):
        calls["backward"] += 1
        if calls["backward"] % 3 == 0:
            warnings.warn("every third time", RuntimeWarning)
        return g


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor, name):
        ctx.save_for_backward(x)
        ctx.factor, ctx.name = factor, name
        ctx.noise = torch.rand(1).item()
        return x * factor

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        torch.rand(1)  # draws while backward runs
        return g * ctx.factor + 0 * x, None, None


class Pair(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        print("materialised:", a is not None, b is not None)
        return (a * y if a is not None else None), (a * x if a is not None else None)


w = torch.randn(4, requires_grad=True)
v = torch.randn(4, requires_grad=True)
opt = torch.optim.Adam([w, v], lr=0.1)
for step in range(6):
    opt.zero_grad()
    a, b = Pair.apply(w, v)
    loss = (Round.apply(Scale.apply(a, 2.5, "a")) - v).pow(2).sum()
    loss.backward()
    opt.step()
    print(step, loss.item(), calls)
