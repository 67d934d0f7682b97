"""Failures that a training loop survives: in forward, backward, hooks and Functions, with their tracebacks as text."""

import traceback
import torch
from torch import nn

torch.manual_seed(0)


class Fragile(torch.autograd.Function):
    fail = False

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if Fragile.fail:
            raise KeyError("in a Function")
        return g * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 2)

    def forward(self, x):
        if x.shape[0] == 3:
            raise IndexError("three rows")
        return Fragile.apply(self.l(x))


net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)


def attempt(name, action):
    try:
        action()
        print(name, "went well")
    except Exception as error:
        print(name, type(error).__name__, str(error).splitlines()[0][:90], error.__context__ is None, error.__cause__)
        print([(one.name, one.lineno) for one in traceback.extract_tb(error.__traceback__) if one.filename == __file__])


def train(n=2, hook=None):
    opt.zero_grad()
    out = net(torch.ones(n, 3))
    if hook:
        out.register_hook(hook)
    out.square().sum().backward()
    opt.step()


def in_hook(g):
    raise StopIteration("in a hook")


def twice():
    y = net(torch.ones(2, 3)).exp()
    y.sum().backward()
    y.sum().backward()


def changed():
    h = torch.sigmoid(net.l(torch.ones(2, 3)))
    h += 1
    h.sum().backward()


for step in range(3):
    attempt("train", train)
    attempt("forward", lambda: train(3))
    attempt("hook", lambda: train(2, in_hook))
    Fragile.fail = True
    attempt("function", train)
    Fragile.fail = False
    attempt("twice", twice)
    attempt("changed", changed)
    attempt("shape", lambda: net(torch.ones(2, 4)))
    attempt("not scalar", lambda: net(torch.ones(2, 3)).backward())
    attempt("no graph", lambda: torch.ones(1).backward())
    attempt("grad", lambda: torch.autograd.grad(net(torch.ones(2, 3)).sum(), torch.ones(1, requires_grad=True)))
    attempt("from_numpy", lambda: torch.from_numpy([1]))
    attempt("numpy", lambda: net(torch.ones(2, 3)).numpy())
    attempt("item", lambda: net(torch.ones(2, 3)).item())
    attempt("parameter", lambda: nn.Parameter("x"))
print(net.l.weight.tolist())
