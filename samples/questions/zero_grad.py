"""Question: the loss jumps around, or grows: is a gradient left over?

backward() adds to `.grad`. Without `optimizer.zero_grad()` each step takes the sum of the gradients of all steps so far,
so the steps get larger and larger.

Try:
    gradviz check samples/questions/zero_grad.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

for step in range(5):
    x = torch.randn(16, 4)
    loss = (net(x) - x.sum(dim=1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
