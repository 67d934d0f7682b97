"""A script that only computes: no training, no `backward()`, no model.

It makes two separate graphs. One ends in `distance`, and `squares` is a step on the way to it. The other ends in
`mean`.

Try:
    python samples/helpers_demo/plain.py
    gradviz render samples/helpers_demo/plain.py
    gradviz render samples/helpers_demo/plain.py:distance
"""

import torch

position = torch.tensor([3.0, 4.0], requires_grad=True)
squares = position**2
distance = squares.sum().sqrt()

heights = torch.tensor([1.0, 2.0, 6.0], requires_grad=True)
mean = heights.mean()

print("distance", distance.item(), "mean", mean.item())
