"""What a script leaves for its end: atexit, finalizers, late prints, a summary that reads `__main__`."""

import atexit
import sys
import weakref
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
losses = []


@atexit.register
def summary():
    print("summary", len(losses), losses[-1], net.weight.grad is not None)
    print("grad mode", torch.is_grad_enabled(), file=sys.stderr)


@atexit.register
def last_backward():
    opt.zero_grad()
    loss = net(torch.ones(2, 3)).sum()
    loss.backward()
    print("at exit", loss.item(), net.bias.grad.item())


class Resource:
    pass


resource = Resource()
weakref.finalize(resource, print, "finalized", "resource")
for step in range(4):
    loss = net(torch.randn(2, 3)).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    print(step, losses[-1])
del resource
try:
    sys.exit(3)
except SystemExit as error:
    print("left with", error.code)
