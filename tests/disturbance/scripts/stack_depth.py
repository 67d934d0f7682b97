"""Helpers that look at the stack: who called, how deep, stack levels of warnings, in forward, hooks and Functions."""

import inspect
import sys
import traceback
import warnings
import torch
from torch import nn


library = torch.__file__.rsplit("/", 1)[0]


def helper(what):
    warnings.warn(what, stacklevel=2)


def above():
    """The functions between here and the module that are not torch's, and their files."""
    found, frame = [], sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        if not frame.f_code.co_filename.startswith(library):
            found.append((frame.f_code.co_name, frame.f_code.co_filename.rsplit("/", 1)[-1]))
        frame = frame.f_back
    return found


seen = []


class Inner(nn.Module):
    def forward(self, x):
        seen.append(("forward", above()))
        helper("in forward")
        return Square.apply(x)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        seen.append(("function forward", above()))
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        seen.append(("function backward", above()))
        warnings.warn("in backward", stacklevel=1)
        helper("called in backward")
        return 2 * g * ctx.saved_tensors[0]


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.inner = nn.Linear(2, 2), Inner()

    def forward(self, x):
        return self.inner(self.lin(x))


class Own(torch.optim.SGD):
    def step(self, closure=None):
        seen.append(("step", above()))
        return super().step(closure)


warnings.simplefilter("always")
torch.manual_seed(0)
net = Outer()
net.register_forward_hook(lambda m, a, o: seen.append(("hook", above())))
net.lin.weight.register_hook(lambda g: seen.append(("tensor hook", above())))
opt = Own(net.parameters(), 0.1)
opt.register_step_post_hook(lambda o, a, k: seen.append(("step hook", above())))
for step in range(4):
    opt.zero_grad()
    loss = net(torch.ones(1, 2)).sum()
    loss.backward()
    opt.step()
    seen.append(("caller", inspect.currentframe().f_code.co_name))

    def called():
        return inspect.stack()[1].function, traceback.extract_stack(limit=2)[0].lineno

    seen.append(called())
    torch.autograd.grad(net(torch.ones(1, 2)).sum(), net.lin.weight)
for one in seen:
    print(*one)
