import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    out = model(torch.randn(8, 4))
    variance = out.square().mean() - out.mean().square() - 10
    loss = torch.sqrt(variance)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
