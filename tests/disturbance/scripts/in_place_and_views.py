"""Views, versions, in-place changes, `.data`, detach_, leaves that are replaced and frozen in the middle."""

import torch
from torch import nn

torch.manual_seed(0)
w = torch.randn(4, 4, requires_grad=True)
buffer = torch.zeros(4, 4)
net = nn.Linear(4, 4)
versions = []
for step in range(5):
    x = torch.randn(4, 4)
    h = (x @ w).mul_(2)
    h[:, 0] += 1
    h[1].copy_(x[1])
    part = h.view(2, 8)[0, :4]
    part.add_(part.detach())
    a, b = net(h).chunk(2)
    rows = torch.stack([row for row in h.unbind()])
    loss = (a * b.T.mT).sum() + rows.index_fill(0, torch.tensor([1]), 0.0).sum() + h.as_strided((2, 2), (1, 4)).sum()
    versions += [h._version, part._version, loss._version, w._version, h._is_view(), part._base is h]
    loss.backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad.zero_()
        buffer.lerp_(h, 0.1)
        net.weight.data = net.weight.data * 0.99
        for p in net.parameters():
            p.data.add_(p.grad, alpha=-0.01) if p.grad is not None else None
            p.grad = None
    if step == 2:
        net.bias.requires_grad_(False)
        net.weight = nn.Parameter(net.weight.detach().clone())
    if step == 3:
        w = w.detach().clone().requires_grad_()
    kept = h.detach_() if step == 1 else h.detach()
    print(step, loss.item(), versions[-6:], kept._version, kept.data_ptr() == h.data_ptr())
x = torch.ones(3, requires_grad=True)
y = x.exp()
y.mul_(2)
try:
    y.sum().backward()
except RuntimeError as error:
    print(str(error).split(";")[0][:100])
try:
    x.add_(1)
except RuntimeError as error:
    print(error)
base = torch.zeros(3)
v = base[1:]
v.mul_(x[1:])
print(base.grad_fn.name(), v.grad_fn.name(), base.requires_grad, base.is_leaf)
base.sum().backward()
