"""torch.fx: symbolic tracing, an interpreter, a pass; make_fx of a training step; AOT-like joint graphs."""

import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
x = torch.randn(2, 3)
for step in range(3):
    opt.zero_grad()
    net(x).square().sum().backward()
    opt.step()


def function(t):
    return torch.relu(t) + t.shape[0] + torch.ones(3) * t.size(1)


for traced in (fx.symbolic_trace(net), fx.symbolic_trace(function)):
    print(traced.code.strip())
    print([(n.op, n.name) for n in traced.graph.nodes])


class Count(fx.Interpreter):
    seen = []

    def run_node(self, n):
        self.seen.append(n.name)
        return super().run_node(n)


out = Count(fx.symbolic_trace(net)).run(x)
out.sum().backward()
print(Count.seen, out.tolist(), net[0].weight.grad.norm().item())


def joint(t):
    loss = net(t).square().sum()
    return loss, torch.autograd.grad(loss, list(net.parameters()))


for mode in ("real", "fake"):
    graph = make_fx(joint, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
    print(mode, [n.name for n in graph.graph.nodes])
    print(graph.code.strip())
print(graph(x)[0].item())
net(x).sum().backward()
