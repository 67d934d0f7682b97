import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(5):
    loss = (model(torch.randn(8, 4)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
