"""Question: will it fit, and with which batch? And: out of memory, what now?

A convolutional network with batch normalization, trained with Adam from a DataLoader. Most of its memory is in
activations, which grow with the batch; the weights and the state of Adam do not.

Try:
    gradviz saved samples/questions/batch.py
    gradviz fit samples/questions/batch.py --memory 24MiB
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(10, (64,)))
net = nn.Sequential(
    nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
    nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
    nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
)
optimizer = torch.optim.Adam(net.parameters())

for x, target in DataLoader(data, batch_size=32):
    loss = nn.functional.cross_entropy(net(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2f}")
