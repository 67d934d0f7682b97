"""Question: "modified by an inplace operation": which one?

A gate is computed with a sigmoid, which saves its result for backward. The next line changes that result in place, so
backward() refuses. The message of torch names the op that saved the tensor, but not the line that changed it.

Try:
    gradviz check samples/questions/inplace.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 4)
x, mask = torch.randn(16, 8), torch.ones(16, 4)

gate = torch.sigmoid(net(x))
gate *= mask
loss = gate.square().mean()
print(f"loss {loss.item():.3f}")
loss.backward()
