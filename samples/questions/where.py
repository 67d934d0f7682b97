"""Question: the loss is finite, but a gradient is NaN, after `torch.where`. Why?

`torch.where` chooses the finite value, so the loss looks fine. In backward, the branch that was not chosen gets a
gradient of zero, and zero times the infinite slope of sqrt at 0 is NaN.

Try:
    gradviz check samples/questions/where.py
"""

import torch

scale = torch.ones(4, requires_grad=True)
x = torch.tensor([0.0, 1.0, 4.0, 9.0])

scaled = x * scale
root = torch.where(scaled > 0, torch.sqrt(scaled), torch.zeros(4))
loss = root.mean()
loss.backward()
print("loss", loss.item(), "gradient", scale.grad.tolist())
