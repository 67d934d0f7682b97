"""Question: "grad can be implicitly created only for scalar outputs": what now?

The loss has one number for each sample. backward() needs a single number, or a gradient to begin with. Usually a
`.mean()` is missing, or `reduction="none"` was meant for another place.

Try:
    gradviz check samples/questions/not_scalar.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 3)
x, target = torch.randn(16, 8), torch.randint(3, (16,))

loss = nn.functional.cross_entropy(net(x), target, reduction="none")
print("loss of shape", tuple(loss.shape))
loss.backward()
