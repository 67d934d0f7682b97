"""Question: how do I get the gradient of an intermediate tensor?

backward() fills `.grad` of leaf tensors only. An intermediate tensor has a gradient, too, but torch drops it once it is
used, unless `retain_grad()` was called before backward().

Try:
    gradviz why samples/questions/hidden_gradient.py hidden
"""

import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(4, 8), nn.Linear(8, 1)

hidden = torch.tanh(first(torch.randn(16, 4)))
loss = second(hidden).square().mean()
loss.backward()
print("a leaf tensor:", hidden.is_leaf)
