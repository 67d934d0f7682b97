"""Signal handlers that note, that raise in the middle of a step, and that run a backward of their own."""

import signal
import torch
from torch import nn


class Late(Exception):
    pass


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.01)
x = torch.randn(4, 3)
noted = []


def note(number, frame):
    noted.append(signal.Signals(number).name)


def late(number, frame):
    raise Late("too slow")


def own_backward(number, frame):
    with torch.enable_grad():
        (g,) = torch.autograd.grad(net(x).sum(), [net[0].weight])
    noted.append(g.norm().item())


def step(during=None, where="forward"):
    opt.zero_grad()
    h = net[0](x)
    if where == "forward" and during:
        signal.raise_signal(during)
    loss = net[2](net[1](h)).square().mean()
    if where == "backward" and during:
        h.register_hook(lambda g: signal.raise_signal(during))
    loss.backward()
    opt.step()
    return loss.item()


signal.signal(signal.SIGUSR1, note)
signal.signal(signal.SIGUSR2, late)
signal.signal(signal.SIGALRM, own_backward)
for i in range(5):
    print(i, step())
    for where in ("forward", "backward"):
        print(where, step(signal.SIGUSR1, where), noted)
        print(where, step(signal.SIGALRM, where), noted[-1])
        try:
            step(signal.SIGUSR2, where)
            print("lost")
        except Late as error:
            print(where, "raised", error)
opt.zero_grad()
