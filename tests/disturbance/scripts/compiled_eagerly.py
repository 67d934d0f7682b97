"""torch.compile with a backend that counts: graphs, breaks and guards are the user's alone."""

import torch
from torch import nn

torch.manual_seed(0)
graphs = []


def backend(graph, inputs):
    graphs.append([n.name for n in graph.graph.nodes])
    return graph.forward


net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
fast = torch.compile(net, backend=backend)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    loss = fast(torch.randn(2, 3)).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.eval()
    with torch.no_grad():
        valid = fast(torch.ones(2, 3)).sum().item()
    net.train()
    print(step, loss.item(), valid, len(graphs))


@torch.compile(backend=backend)
def f(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y * x.shape[0]


print(f(torch.ones(3)).tolist(), f(torch.ones(3)).tolist(), len(graphs))
for one in graphs:
    print(one)
