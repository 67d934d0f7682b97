import numpy as np
import torch
from torch import nn


def distance(a, b):
    return torch.from_numpy(np.abs(a.detach().numpy() - b.detach().numpy())).mean()


torch.manual_seed(0)
encoder = nn.Linear(5, 3)
optimizer = torch.optim.Adam(encoder.parameters())
for step in range(4):
    left, right = encoder(torch.randn(8, 5)), encoder(torch.randn(8, 5))
    loss = distance(left, right)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
