"""Question: do I need `retain_graph=True`?

It is often added to silence an error. Here each step builds a new graph and goes through it once, so nothing needs the
old graph: the argument only keeps memory until the next step.

Try:
    gradviz check samples/questions/retain_graph.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

for step in range(4):
    loss = net(torch.randn(256, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
print(f"loss {loss.item():.4f}")
