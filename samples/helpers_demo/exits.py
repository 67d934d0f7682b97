"""A script that ends with `sys.exit(0)`, as many do. Its graph is there all the same.

Try:
    python samples/helpers_demo/exits.py
    gradviz render samples/helpers_demo/exits.py
"""

import sys

import torch

weight = torch.tensor([1.0, 2.0], requires_grad=True)
loss = (weight * 3).sum()
print("loss", loss.item())
sys.exit(0)
