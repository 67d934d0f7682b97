import torch
from torch import nn

torch.manual_seed(0)
cell = nn.RNNCell(3, 5)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
state = torch.zeros(2, 5)
for chunk in range(4):
    state = state.detach()
    for step in range(3):
        state = cell(torch.randn(2, 3), state)
    loss = state.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
