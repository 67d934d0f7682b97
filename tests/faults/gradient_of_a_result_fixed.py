import torch
from torch import nn

torch.manual_seed(0)
convolution = nn.Conv2d(1, 2, 3)
features = convolution(torch.randn(1, 1, 8, 8))
features.retain_grad()
score = features.relu().mean()
score.backward()
print(features.grad)
