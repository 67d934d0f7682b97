"""torch.compile: the model runs as one compiled function, and so does its backward.

Autograd records one node for all of it. It says what it runs and keeps, and which parameters get a gradient.

--backend aot_eager   Which compiler: eager (backward stays uncompiled), aot_eager, or inductor (needs a C++ compiler).
--fault cut           The gate is detached inside the compiled code: its layer learns nothing, and nothing fails.

Try:
    gradviz render samples/compiled.py
    gradviz tree samples/compiled.py
    gradviz saved samples/compiled.py
    gradviz check samples/compiled.py -- --fault cut
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser(description="A compiled model, right and wrong.")
parser.add_argument("--backend", choices=["eager", "aot_eager", "inductor"], default="aot_eager")
parser.add_argument("--fault", choices=["none", "cut"], default="none")
arguments = parser.parse_args()


class Block(nn.Module):
    """A gated residual block."""

    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))
        self.gate = nn.Linear(size, size)

    def forward(self, x):
        h = self.norm(x)
        gate = torch.sigmoid(self.gate(h))
        if arguments.fault == "cut":
            gate = gate.detach()
        return x + gate * self.mlp(h)


class Net(nn.Module):
    """Two blocks and a head."""

    def __init__(self, size=16):
        super().__init__()
        self.blocks = nn.Sequential(Block(size), Block(size))
        self.head = nn.Linear(size, 1)

    def forward(self, x):
        return self.head(self.blocks(x))


torch.manual_seed(0)
model = Net()
run = torch.compile(model, backend=arguments.backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(32, 16), torch.randn(32, 1)

for _ in range(3):
    loss = (run(inputs) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
