"""Problem: the forward pass stops half way, because two shapes do not fit.

The third layer expects 32 numbers for each row and gets 16. PyTorch says so with the shapes of the two matrices, but
what had been computed until then is as interesting: which layers ran, and what shapes they made. The script ends with
PyTorch's error, on purpose, and so with an exit status other than zero.

Try:
    python samples/problems/forward_error.py
    gradviz render samples/problems/forward_error.py
"""

import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 16)
        self.third = nn.Linear(32, 1)  # should be nn.Linear(16, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.third(x)


model = Model()
inputs = torch.randn(2, 4)
print("before the forward pass")
loss = model(inputs).sum()
loss.backward()
print("never printed")
