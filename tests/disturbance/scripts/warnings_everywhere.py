"""Warnings of the script, of its helper with a stack level, of torch's Python and C++, in forward and backward, with filters."""

import warnings
import torch
from torch import nn

warnings.simplefilter("always")
caught = []


def remember(message, category, filename, lineno, file=None, line=None):
    caught.append((str(message)[:40], category.__name__, filename.rsplit("/", 1)[-1], lineno))


def deprecated(name):
    warnings.warn(f"{name} is old", DeprecationWarning, stacklevel=2)


class Old(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_full_backward_hook(lambda *a: None)

    def forward(self, x):
        deprecated("Old")
        return self.linear(x)


torch.manual_seed(0)
net = Old()
net.linear.weight.register_hook(lambda g: warnings.warn("in a hook", UserWarning))
plain_show = warnings.showwarning
warnings.showwarning = remember
opt = torch.optim.SGD(net.parameters(), 0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 1)
x = torch.randn(4, 3)
for step in range(4):
    out = net(x)
    loss = nn.functional.mse_loss(out, torch.zeros(4))  # broadcasts: warns from Python
    loss.backward()
    nn.functional.softmax(out)  # implicit dim
    torch.range(0, 2)  # C++ deprecation
    torch.tensor(out)  # copy construct
    (out * 2).grad  # .grad of a non-leaf
    x.T[0:1].T
    torch.ones(3, 2, 2).T  # C++ once
    float(loss.reshape(1))
    sched.step()
    opt.step()
    deprecated("a call of several lines")
warnings.showwarning = plain_show
for line in caught:
    print(line)
print(len(caught), "caught")
warnings.warn("one to stderr")
with warnings.catch_warnings():
    warnings.filterwarnings("error", category=UserWarning, module="__main__")
    try:
        net(x).sum().backward()
    except UserWarning as error:
        print("raised", error)
    try:
        nn.functional.mse_loss(net(x), torch.zeros(4))
    except UserWarning as error:
        print("raised", str(error)[:40])
try:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.tensor(net.linear(x))
except UserWarning as error:
    frames, tb = [], error.__traceback__
    while tb:
        frames.append((tb.tb_frame.f_code.co_filename.rsplit("/", 1)[-1], tb.tb_lineno))
        tb = tb.tb_next
    print("raised", str(error)[:40], [one for one in frames if one[0] == __file__.rsplit("/", 1)[-1]])
