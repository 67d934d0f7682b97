"""Question: why do some of my layers not train?

Three layers are kept in a Python list. nn.Module does not look into lists, so `net.parameters()` leaves them out: the
optimizer never gets them, and they keep their random values.

Try:
    gradviz check samples/questions/python_list.py
"""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 8) for _ in range(3)]
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(3):
    x = torch.randn(16, 8)
    loss = (net(x) - x.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(len(list(net.parameters())), "parameters")
