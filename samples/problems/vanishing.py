"""Problem: the gradient vanishes on its way down.

The slope of a sigmoid is at most 1/4. Ten of them in a row multiply the gradient by less than a millionth, and the
weights in between, small at the start, do the rest. The last layer learns; the first ones get a gradient of nearly zero
and stay where they are. Nothing fails, the loss just stops going down early.

Remedies: ReLU-like activations, residual connections, normalisation, an initialisation made for the activation.

Try:
    python samples/problems/vanishing.py
    gradviz flow samples/problems/vanishing.py
"""

import torch
from torch import nn

torch.manual_seed(0)


class SigmoidNetwork(nn.Module):
    def __init__(self, depth, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.output = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        return self.output(x)


model = SigmoidNetwork(depth=12, width=16)
inputs = torch.randn(32, 16)
target = torch.randn(32, 1)
loss = nn.functional.mse_loss(model(inputs), target)
loss.backward()

norms = [layer.weight.grad.norm().item() for layer in model.layers]
assert norms[0] < norms[-1] * 1e-6
for depth in (0, 4, 8, 11):
    print(f"gradient norm of layer {depth:>2}: {norms[depth]:.1e}")
