import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(4):
    gate = torch.sigmoid(layer(torch.randn(3, 4)))
    gate *= 0.5
    loss = (gate - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
