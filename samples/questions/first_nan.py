"""Question: the loss is NaN: which op made the first one?

One row of the data is empty. Its mean is a division of zero by zero: NaN. Every op after it only passes that on, up to
the loss, where it is seen first.

Try:
    gradviz check samples/questions/first_nan.py
"""

import torch
from torch import nn

torch.manual_seed(0)
embed, head = nn.Linear(4, 8), nn.Linear(8, 1)
tokens = torch.randn(3, 5, 4)
lengths = torch.tensor([5, 2, 0])
mask = (torch.arange(5) < lengths[:, None]).float()[..., None]

total = (embed(tokens) * mask).sum(dim=1)
average = total / mask.sum(dim=1)
prediction = head(average)
loss = prediction.square().mean()
loss.backward()
print("loss", loss.item())
