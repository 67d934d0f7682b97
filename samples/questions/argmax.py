"""Question: "element 0 of tensors does not require grad": why not?

The loss compares classes that argmax chose. argmax returns integers, and these have no gradient, so the loss has no
graph. A loss on the logits (cross entropy) has one.

Try:
    gradviz check samples/questions/argmax.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 3)
x, target = torch.randn(16, 8), torch.randint(3, (16,))

classes = net(x).argmax(dim=1)
loss = nn.functional.mse_loss(classes.float(), target.float())
print(f"loss {loss.item():.3f}")
loss.backward()
