"""The user's own anomaly mode: what it says of NaN, with the stack of the forward call, and that it is as it was afterwards."""

import os
import traceback
import warnings
import torch
from torch import nn

here = os.path.basename(__file__)
torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)


def own_lines(text):
    """The stack from this file's first frame on, without what ran the script."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if here in line or "anomaly" in line.lower())
    return lines[first:]


def risky(x):
    return torch.sqrt(net(x) * 0)


def show(message, category, filename, lineno, file=None, line=None):
    print(category.__name__, os.path.basename(filename))
    for one in own_lines(str(message)):
        print("  |", one.replace(os.path.dirname(__file__), ""))


for step in range(3):
    opt.zero_grad()
    loss = net(torch.ones(2, 3)).sum()
    loss.backward()
    opt.step()
warnings.showwarning = show
warnings.simplefilter("always")
with torch.autograd.detect_anomaly(check_nan=True):
    for step in range(2):
        print("inside", torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        loss = risky(torch.ones(2, 3)).sum()
        try:
            loss.backward()
        except RuntimeError as error:
            print("RuntimeError:", error)
print("outside", torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
loss = risky(torch.ones(2, 3)).sum()
loss.backward()
print(net.weight.grad.isnan().all().item())
with torch.autograd.set_detect_anomaly(True, check_nan=False):
    loss = risky(torch.ones(2, 3)).sum()
    print(sorted(loss.grad_fn.metadata), torch.is_anomaly_check_nan_enabled())
    print("\n".join(own_lines("".join(loss.grad_fn.metadata["traceback_"]))))
torch.autograd.set_detect_anomaly(True)
print(torch.is_anomaly_enabled())
torch.autograd.set_detect_anomaly(False)
print(torch.is_anomaly_enabled())
