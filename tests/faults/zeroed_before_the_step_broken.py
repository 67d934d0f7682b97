import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = (model(torch.randn(8, 4)) - 1).square().mean()
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
