"""Counts what a TorchDispatchMode, a TorchFunctionMode and a subclass of Tensor see while training."""

import collections
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

ops, functions, methods = collections.Counter(), collections.Counter(), collections.Counter()


class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ops[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        functions[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        methods[getattr(func, "__name__", str(func))] += 1
        return super().__torch_function__(func, types, args, kwargs or {})


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)


def step(x):
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    opt.step()
    return loss.item()


for i in range(4):
    step(torch.ones(2, 3))
with Ops():
    for i in range(4):
        step(torch.ones(2, 3))
print("ops", sum(ops.values()), sorted(ops.items()))
with Functions():
    for i in range(4):
        step(torch.ones(2, 3))
print("functions", sum(functions.values()), sorted(functions.items()))
for i in range(4):
    step(torch.ones(2, 3).as_subclass(Tagged))
print("methods", sum(methods.values()), sorted(methods.items()))
with Functions(), Ops():
    step(torch.ones(2, 3).as_subclass(Tagged))
print(sum(ops.values()), sum(functions.values()), sum(methods.values()))
