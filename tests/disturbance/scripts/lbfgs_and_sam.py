"""LBFGS with a closure, and sharpness-aware minimisation: two backward calls a step."""

import torch
from torch import nn

torch.manual_seed(0)
X = torch.linspace(-1, 1, 32)[:, None]
Y = torch.sin(3 * X)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
calls = 0


def closure():
    global calls
    calls += 1
    opt.zero_grad()
    loss = (net(X) - Y).square().mean()
    if loss.requires_grad:
        loss.backward()
    return loss


for i in range(3):
    print("lbfgs", i, opt.step(closure).item(), calls)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base = torch.optim.SGD(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        grads = [p.grad for g in self.param_groups for p in g["params"]]
        norm = torch.stack([g.norm() for g in grads]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                e = p.grad * (group["rho"] / (norm + 1e-12))
                p.add_(e)
                self.state[p]["e"] = e
        loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["e"])
        self.base.step()
        return loss


sam = SAM(net.parameters(), lr=0.05, momentum=0.9)


def again():
    sam.zero_grad()
    loss = (net(X) - Y).abs().mean()
    loss.backward()
    return loss


for i in range(4):
    first = again()
    second = sam.step(again)
    print("sam", i, first.item(), second.item())
