"""torch.func: an ensemble by vmap, per-sample gradients, Jacobians and Hessians, beside ordinary training."""

import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
params = dict(net.named_parameters())
x, y = torch.randn(5, 3), torch.randn(5, 1)


def loss_of(p, a, b):
    return (functional_call(net, p, (a[None],)) - b[None]).square().mean()


for step in range(3):
    per_sample = vmap(grad(loss_of), (None, 0, 0))(params, x, y)
    value = vmap(grad_and_value(loss_of), (None, 0, 0), randomness="different")(params, x, y)[1]
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    difference = max((per_sample[n].mean(0) - p.grad).abs().max().item() for n, p in params.items())
    opt.step()
    print(step, loss.item(), value.mean().item(), difference < 1e-5)


def f(v):
    return (v.sin() * v.prod()).cumsum(0)


v = torch.randn(3)
print(jacrev(f)(v).tolist(), jacfwd(f)(v).tolist(), hessian(lambda t: f(t).sum())(v).tolist())
out, pull = vjp(f, v)
print(pull(torch.ones(3))[0].tolist(), jvp(f, (v,), (torch.ones(3),))[1].tolist())
models = [nn.Linear(3, 2) for _ in range(3)]
stacked, buffers = stack_module_state(models)
base = nn.Linear(3, 2, device="meta")
ens = vmap(lambda p, b, t: functional_call(base, (p, b), (t,)), (0, 0, None))(stacked, buffers, x)
ens.square().sum().backward()
print({k: p.grad.norm().item() for k, p in stacked.items()})
print(vmap(lambda t: t + torch.rand(1), randomness="same")(torch.zeros(3)).tolist())
