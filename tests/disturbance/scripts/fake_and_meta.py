"""Models on the meta device and under FakeTensorMode: a dry run of training, then the real one."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

torch.manual_seed(0)


def build():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))


with torch.device("meta"):
    dry = build()
opt = torch.optim.Adam(dry.parameters(), 0.1)
for step in range(4):
    opt.zero_grad()
    loss = dry(torch.randn(5, 3, device="meta")).sum()
    loss.backward()
    opt.step()
    print("meta", step, loss.shape, dry[0].weight.grad.device)
with FakeTensorMode() as mode:
    fake = build()
    opt = torch.optim.SGD(fake.parameters(), 0.1)
    for step in range(3):
        opt.zero_grad()
        loss = fake(torch.randn(5, 3)).sum()
        loss.backward()
        opt.step()
    print("fake", type(loss).__name__, loss.shape, loss.device)
real = dry.to_empty(device="cpu")
for module in real.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
real[1].reset_running_stats()
opt = torch.optim.SGD(real.parameters(), 0.1)
for step in range(4):
    opt.zero_grad()
    loss = real(torch.randn(5, 3)).square().sum()
    loss.backward()
    opt.step()
    print("real", step, loss.item())
del opt, fake, mode
