"""Hooks of every kind, and what each is told, in which order."""

import torch
from torch import nn

torch.manual_seed(0)
log = []


def note(*what):
    log.append(what)


net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
net[0].register_forward_pre_hook(lambda m, a: note("pre", len(a)))
net[0].register_forward_hook(lambda m, a, o: note("fwd", tuple(o.shape)))
net[2].register_full_backward_pre_hook(lambda m, g: note("bpre", g[0].norm().item()))
net[2].register_full_backward_hook(lambda m, gi, go: note("bwd", gi[0].norm().item(), go[0].norm().item()))
net.register_forward_hook(lambda m, a, k, o: o * 1.5, with_kwargs=True)
net[0].weight.register_hook(lambda g: g.clamp(-0.1, 0.1))
net[2].weight.register_post_accumulate_grad_hook(lambda p: note("post", p.grad.norm().item()))
glob = nn.modules.module.register_module_forward_hook(lambda m, a, o: note("global", type(m).__name__))
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
opt.register_step_pre_hook(lambda o, a, k: note("before step"))
opt.register_step_post_hook(lambda o, a, k: note("after step"))

for step in range(5):
    x = torch.randn(3, 4)
    out = net(x)
    out.retain_grad()
    out.register_hook(lambda g: note("out", g.sum().item()))
    out.grad_fn.register_prehook(lambda g: note("prehook", len(g)))
    out.grad_fn.register_hook(lambda gi, go: note("node", len(gi), len(go)))
    handle = torch.autograd.graph.register_multi_grad_hook(tuple(net.parameters()), lambda gs: note("multi", len(gs)))
    loss = out.square().sum()
    opt.zero_grad(set_to_none=bool(step % 2))
    loss.backward()
    handle.remove()
    opt.step()
    print(step, loss.item(), out.grad.norm().item(), len(log))
glob.remove()
for one in log:
    print(*one)
