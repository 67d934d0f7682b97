import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss(reduction="none")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    losses = criterion(model(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1]))
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
