"""sys.settrace and sys.setprofile of the user's own, as coverage and profilers have them, while a model trains."""

import collections
import sys
import torch
from torch import nn

here = __file__
lines, calls = collections.Counter(), collections.Counter()


def tracer(frame, event, arg):
    if frame.f_code.co_filename != here:
        return None
    lines[(frame.f_code.co_name, event, frame.f_lineno)] += 1
    return tracer


def profiler(frame, event, arg):
    if frame.f_code.co_filename == here and event in ("call", "return"):
        calls[(frame.f_code.co_name, event)] += 1
    elif event == "c_call" and frame.f_code.co_filename == here:
        calls[getattr(arg, "__name__", "")] += 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 1)

    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        return self.l(x)


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
net.l.weight.register_hook(lambda g: g * 2)


def train(n):
    for step in range(n):
        loss = net(torch.randn(2, 3)).square().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


sys.settrace(tracer)
a = train(3)
sys.settrace(None)
sys.setprofile(profiler)
b = train(3)
sys.setprofile(None)
print(a, b, sys.gettrace(), sys.getprofile())
for one in sorted(lines.items()):
    print(*one)
for one in sorted(calls.items(), key=str):
    print(*one)
