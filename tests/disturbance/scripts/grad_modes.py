"""no_grad, enable_grad, inference_mode and set_grad_enabled as blocks, decorators and around generators; train and eval."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
seen = []


@torch.no_grad()
def evaluate(x):
    """Doc of evaluate."""
    net.eval()
    out = net(x)
    seen.append((torch.is_grad_enabled(), out.requires_grad))
    with torch.enable_grad():
        again = net(x)
        seen.append((torch.is_grad_enabled(), again.requires_grad))
    net.train()
    return out.mean().item(), again.mean().item()


@torch.no_grad()
def batches(n):
    for _ in range(n):
        seen.append(torch.is_grad_enabled())
        yield torch.randn(5, 3)


@torch.inference_mode()
def predict(x):
    return net(x)


for step, x in enumerate(batches(4)):
    with torch.set_grad_enabled(step != 2):
        out = net(x)
        seen.append(out.requires_grad)
    if out.requires_grad:
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    fixed = predict(x)
    print(step, loss.item(), evaluate(x), fixed.is_inference(), fixed.requires_grad, seen[-4:])
try:
    (fixed * net[0].weight.sum()).sum().backward()
    fixed.add_(1)
except RuntimeError as error:
    print(str(error)[:70])
with torch.inference_mode():
    frozen = torch.ones(3)
    inner = net[0](frozen[None])
try:
    net[0](frozen[None])
    print("no error")
except RuntimeError as error:
    print(str(error)[:70])
torch.set_grad_enabled(False)
print(net(torch.ones(2, 3)).requires_grad, evaluate.__name__, evaluate.__doc__)
torch.set_grad_enabled(True)
