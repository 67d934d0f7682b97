import torch
from torch import nn

torch.manual_seed(0)
cell = nn.GRUCell(3, 5)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
memory = torch.zeros(2, 5)
for step in range(4):
    memory = cell(torch.randn(2, 3), memory.detach())
    loss = memory.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
