"""Question: out of memory: what now?

A penalty multiplies every weight with every other one: a matrix of 81 trillion numbers, which no machine holds. A
command that runs the script says how much was asked for, which lines hold memory by then, and what a checkpoint frees.

Try:
    gradviz saved samples/questions/out_of_memory.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Sequential(nn.Linear(3000, 3000), nn.GELU()), nn.Sequential(nn.Linear(3000, 10), nn.LogSoftmax(dim=1))
)

scores = net(torch.randn(64, 3000))
print("scores of shape", tuple(scores.shape))
weights = nn.utils.parameters_to_vector(net.parameters())
penalty = torch.outer(weights, weights).abs().mean()
loss = penalty - scores[:, 0].mean()
loss.backward()
