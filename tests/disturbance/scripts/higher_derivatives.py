"""retain_graph, create_graph, MAML, Hessian-vector products, batched gradients, inputs=, gradients of vectors, gradcheck."""

import torch
from torch import nn
from torch.autograd import functional as AF, gradcheck, gradgradcheck

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
opt = torch.optim.Adam(net.parameters(), 1e-2)
params = list(net.parameters())


def forward(ps, x):
    return torch.tanh(x @ ps[0].T + ps[1]) @ ps[2].T + ps[3]


for step in range(3):
    x, y = torch.randn(5, 2), torch.randn(5, 1)
    inner = (forward(params, x) - y).square().mean()
    grads = torch.autograd.grad(inner, params, create_graph=True)
    fast = [p - 0.1 * g for p, g in zip(params, grads)]
    outer = (forward(fast, x.flip(0)) - y).square().mean()
    opt.zero_grad()
    outer.backward(retain_graph=True)
    hv = torch.autograd.grad(grads, params, [torch.ones_like(p) for p in params], retain_graph=True)
    outer.backward(inputs=[params[0]])
    opt.step()
    print(step, inner.item(), outer.item(), sum(h.sum().item() for h in hv), params[0].grad.norm().item())
x = torch.randn(3, requires_grad=True)
y = x.exp() * x.sum()
y.backward(torch.tensor([1.0, 0.5, 0.1]), retain_graph=True)
first = x.grad.clone()
y.backward(torch.tensor([1.0, 0.5, 0.1]))
print(torch.equal(x.grad, 2 * first), first.tolist())
rows = torch.autograd.grad(x.exp() * x.sum(), x, torch.eye(3), is_grads_batched=True)[0]
print(
    rows.tolist(),
    AF.jacobian(lambda t: t.exp() * t.sum(), x).tolist(),
    AF.hvp(lambda t: t.pow(3).sum(), x, torch.ones(3))[1].tolist(),
)
print(torch.autograd.grad(x.sum(), [x, params[0]], allow_unused=True, materialize_grads=True)[1].abs().sum().item())
d = torch.randn(3, dtype=torch.double, requires_grad=True)
print(gradcheck(torch.sin, d), gradgradcheck(lambda t: t.pow(3), d))
try:
    y.backward()
except RuntimeError as error:
    print(str(error)[:60])
torch.autograd.backward([x.sum(), x.pow(2).sum()], inputs=x)
print(x.grad.tolist(), inner.grad_fn is not None)
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones(3))
    print(torch.autograd.forward_ad.unpack_dual(dual.sin()).tangent.tolist())
