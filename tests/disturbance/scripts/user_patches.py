"""Somebody who replaces parts of torch himself while training, and puts them back: backward, Module.__call__, step, functions."""

import functools
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
log = []
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.Adam(net.parameters(), 1e-2)


def noted(name, function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        log.append(name)
        return function(*args, **kwargs)

    return wrapper


def step():
    loss = net(torch.randn(2, 3)).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


for i in range(2):
    print(step())
originals = torch.Tensor.backward, nn.Module.__call__, F.relu, torch.optim.Adam.step, torch.autograd.backward
torch.Tensor.backward = noted("backward", originals[0])
nn.Module.__call__ = noted("call", originals[1])
F.relu = noted("relu", originals[2])
opt.step = noted("step", opt.step)
torch.autograd.backward = noted("autograd.backward", originals[4])
for i in range(3):
    print(step(), len(log))
torch.Tensor.backward, nn.Module.__call__, F.relu, _, torch.autograd.backward = originals
del opt.step
for i in range(3):
    print(step(), len(log))
print(log)
print(
    [torch.Tensor.backward is originals[0], nn.Module.__call__ is originals[1], torch.autograd.backward is originals[4]]
)


class Loud(nn.Linear):
    def __call__(self, *args, **kwargs):
        log.append("own call")
        return super().__call__(*args, **kwargs)

    def __setattr__(self, name, value):
        log.append(f"set {name}")
        super().__setattr__(name, value)


net[2] = Loud(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(3):
    print(step(), log[-2:])
print(len(log))
