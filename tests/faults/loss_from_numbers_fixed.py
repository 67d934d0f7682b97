import torch
from torch import nn

torch.manual_seed(0)
scorer = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(scorer.parameters(), lr=0.05)
for epoch in range(4):
    pairs = [(torch.randn(6), torch.randn(1)) for _ in range(3)]
    losses = [(scorer(x) - y).square().sum() for x, y in pairs]
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
