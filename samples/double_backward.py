"""Gradients of gradients: a gradient penalty.

Some losses contain a gradient. Here a critic scores points, and it is to be punished wherever its slope is not 1: the
penalty is (length of the gradient of the score - 1) squared. To train on that, the gradient itself must have a graph.
`torch.autograd.grad(..., create_graph=True)` records the backward pass too: every backward function that runs makes
further nodes, such as `TanhBackwardBackward0` and `MmBackward0`, on top of the first graph.

The script calls the engine twice: `autograd.grad` for the inner gradient, then `penalty.backward()`. The second is the
graph worth a look, so ask for it with `--at 2`.

Try:
    python samples/double_backward.py
    gradviz render samples/double_backward.py            (the first graph: the score)
    gradviz render samples/double_backward.py --at 2     (the second: the penalty, with the backward pass in it)
"""

import torch
from torch import nn

torch.manual_seed(0)

critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
points = torch.randn(6, 2, requires_grad=True)

score = critic(points).sum()
(slope,) = torch.autograd.grad(score, points, create_graph=True)
assert slope.grad_fn is not None  # the gradient has a graph of its own

penalty = (slope.norm(dim=1) - 1).square().mean()
penalty.backward()

# The same number for one weight, by hand: move it a little to both sides and watch the penalty.
weight = critic[0].weight
assert weight.grad.abs().max() > 0
moved = []
for shift in (-1e-2, 1e-2):
    with torch.no_grad():
        weight[0, 0] += shift
    (moved_slope,) = torch.autograd.grad(critic(points).sum(), points)
    moved.append((moved_slope.norm(dim=1) - 1).square().mean().item())
    with torch.no_grad():
        weight[0, 0] -= shift
by_hand = (moved[1] - moved[0]) / 2e-2
assert abs(by_hand - weight.grad[0, 0].item()) < 1e-3

print(f"penalty {penalty.item():.4f}")
print(f"its derivative for one weight: {weight.grad[0, 0].item():.4f}, by small steps: {by_hand:.4f}")
