import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    out = model(torch.randn(8, 4))
    optimizer.zero_grad()
    (out - 1).square().mean().backward(retain_graph=True)
    out.abs().mean().backward()
    optimizer.step()
