"""A tensor that wraps another and counts what it is asked, as quantised and sharded tensors do."""

import collections
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

seen = collections.Counter()


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=requires_grad)

    def __init__(self, inner, requires_grad=False):
        self.inner = inner

    def __repr__(self):
        seen["repr"] += 1
        return "Wrapped"

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Wrapped(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        seen[str(func)] += 1
        unwrap = lambda t: tree_map_only(Wrapped, lambda w: w.inner, t)
        return tree_map_only(torch.Tensor, cls, func(*unwrap(args), **unwrap(kwargs or {})))


torch.manual_seed(0)
w = nn.Parameter(Wrapped(torch.randn(3, 3)))
plain = nn.Parameter(torch.randn(3))
head = nn.Linear(3, 1)
head.weight = nn.Parameter(Wrapped(head.weight.detach()))
opt = torch.optim.SGD([w, plain, *head.parameters()], 0.1)
for step in range(5):
    opt.zero_grad()
    loss = head((w @ w).tanh() * plain).square().sum()
    loss.backward()
    opt.step()
    print(step, sum(seen.values()), loss.inner.item())
print(sorted(seen.items()))
