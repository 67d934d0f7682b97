import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in range(12):
    loss = (model(torch.randn(8, 4)) - 1).square().mean() / 4
    loss.backward()
    if batch % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
