import torch
from torch import nn


def distance(a, b):
    return (a - b).abs().mean()


torch.manual_seed(0)
encoder = nn.Linear(5, 3)
optimizer = torch.optim.Adam(encoder.parameters())
for step in range(4):
    left, right = encoder(torch.randn(8, 5)), encoder(torch.randn(8, 5))
    loss = distance(left, right)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
