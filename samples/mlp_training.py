"""A whole training loop: a multilayer perceptron learns which points lie inside a circle.

Every turn of the loop records a new graph, from the loss back to the parameters, and `loss.backward()` uses it up: the
tensors it saved are freed as the backward pass goes along, and the graph itself goes when `loss` is replaced. All turns
make the same graph here, with other numbers.

gradviz shows the graph of the first `backward()`, taken just before it runs; `--at 10` shows the tenth.

Try:
    python samples/mlp_training.py
    gradviz render samples/mlp_training.py
    gradviz tree samples/mlp_training.py
    gradviz saved samples/mlp_training.py
    gradviz flow samples/mlp_training.py --at 10
    gradviz check samples/mlp_training.py
"""

import torch
from torch import nn

torch.manual_seed(0)


class MLP(nn.Module):
    """Points in, one logit out, with two hidden layers."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.second = nn.Linear(width, width)
        self.output = nn.Linear(width, 1)

    def forward(self, points):
        hidden = torch.relu(self.first(points))
        hidden = torch.relu(self.second(hidden))
        return self.output(hidden).squeeze(1)


points = torch.rand(256, 2) * 2 - 1
inside = (points.norm(dim=1) < 0.7).float()

model = MLP()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
losses = []

for _ in range(100):
    logits = model(points)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, inside)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

with torch.no_grad():
    accuracy = ((model(points) > 0) == (inside > 0.5)).float().mean().item()

assert losses[-1] < losses[0] / 3
assert accuracy > 0.9
print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} steps, accuracy {accuracy:.2f}")
