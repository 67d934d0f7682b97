"""Problem: a gradient that is not a number, while the loss looks fine.

The distance of two equal points is sqrt(0) = 0, a fine number. But the slope of sqrt at 0 is infinite, and the backward
pass then multiplies that infinity with the derivative of the square below it, which is 0. Infinity times zero is NaN.
The loss shows nothing. One pair of equal points is enough to spoil the gradient of every weight that it touches, and
after one step of the optimizer the model is full of NaN.

The second loss has the same problem earlier: the logarithm of 0 is minus infinity, and 0 times that is NaN already in
the forward pass.

The usual remedies are a small number under the root, `clamp` in front of the logarithm, or a function made for the
purpose (`torch.xlogy`, `nn.functional.pairwise_distance`).

Try:
    python samples/problems/nan.py
    gradviz flow samples/problems/nan.py
    gradviz check samples/problems/nan.py --values
"""

import torch

torch.manual_seed(0)

weight = torch.ones(2, 2, requires_grad=True)
first = torch.tensor([[1.0, 2.0], [0.5, 0.5]])
second = torch.tensor([[3.0, 1.0], [0.5, 0.5]])  # its second point equals that of `first`

difference = (first - second) @ weight
distance = torch.sqrt(difference.square().sum(dim=1))
loss = distance.mean()
loss.backward()

assert loss.isfinite()
assert weight.grad.isnan().all()
print(f"sqrt: loss {loss.item():.4f}, gradient {weight.grad.tolist()}")

logits = torch.tensor([200.0, 0.0, -200.0], requires_grad=True)
probabilities = torch.softmax(logits, dim=0)
entropy = -(probabilities * torch.log(probabilities)).sum()
entropy.backward()

assert entropy.isnan() and logits.grad.isnan().any()
print(f"log: entropy {entropy.item()}, gradient {logits.grad.tolist()}")
