"""The profilers of torch: how often each operation is called, in training and with record_function."""

import os
import warnings
import torch
from torch import nn
from torch.profiler import record_function
from torch.utils.benchmark import Timer

warnings.filterwarnings("ignore")

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.Adam(net.parameters(), 1e-2)


def step():
    with record_function("## forward ##"):
        loss = net(torch.ones(2, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss


for i in range(3):
    print(i, step().item())
quiet, err = os.open(os.devnull, os.O_WRONLY), os.dup(2)  # the time of day, written by C++
os.dup2(quiet, 2)
with torch.autograd.profiler.profile(use_kineto=False) as prof:
    for i in range(2):
        step()
os.dup2(err, 2)
del quiet, err
counts = {e.key: e.count for e in prof.key_averages()}
print(sorted(counts.items()))
print(Timer("step()", globals=globals()).timeit(5).number_per_run)
