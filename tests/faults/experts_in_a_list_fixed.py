import torch
from torch import nn


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList([nn.Linear(4, 2) for _ in range(3)])

    def forward(self, x):
        weights = self.gate(x).softmax(dim=-1)
        return sum(weights[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


torch.manual_seed(0)
mixture = Mixture()
optimizer = torch.optim.SGD(mixture.parameters(), lr=0.1)
for step in range(4):
    loss = mixture(torch.randn(5, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
