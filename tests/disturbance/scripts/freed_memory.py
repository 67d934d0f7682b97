"""What is alive when: activations after backward, models after del, cycles, counts of references."""

import gc
import sys
import weakref
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
gone = []


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(y)
        weakref.finalize(y, gone.append, "activation")
        return y

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Batch:
    def __init__(self, x):
        self.x = x


gc.disable()
for step in range(6):
    batch = Batch(torch.randn(2, 3))
    refs = [weakref.ref(batch), weakref.ref(batch.x)]
    h = net[0](batch.x)
    refs.append(weakref.ref(h))
    h = net[1](h)
    loss = net[2](Keep.apply(h)).square().mean()
    refs += [weakref.ref(h), weakref.ref(loss)]
    counts = [sys.getrefcount(one) for one in (net, opt, net[0].weight, h, batch)]
    opt.zero_grad()
    loss.backward()
    opt.step()
    del h, batch
    after = [ref() is None for ref in refs]
    del loss
    print(step, after, [ref() is None for ref in refs], counts, gone)
short = nn.Linear(3, 3)
short(torch.ones(1, 3)).sum().backward()
refs = [weakref.ref(short), weakref.ref(short.weight), weakref.ref(short.weight.grad)]
del short
print([ref() is None for ref in refs])
gc.enable()
