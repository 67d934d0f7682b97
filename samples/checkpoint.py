"""Checkpointing: compute again instead of keeping.

`torch.utils.checkpoint` runs a part of the model without keeping what it would save for the backward pass, and runs
that part a second time when the backward pass gets there. Memory is paid for with time. There are two ways:

non-reentrant   The part is recorded as usual, but its saved tensors are replaced by placeholders. The graph looks the
                same; reading a saved tensor is what starts the second run.
reentrant       The older way. The part runs unrecorded, and one node, `CheckpointFunctionBackward`, stands for all of
                it. What is inside is not in the graph until the backward pass runs it again.

Both give the same gradients, and both run the block twice.

Try:
    python samples/checkpoint.py
    python samples/checkpoint.py --mode reentrant
    gradviz render samples/checkpoint.py
    gradviz render samples/checkpoint.py -- --mode reentrant
    gradviz saved samples/checkpoint.py
"""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser(description="Activation checkpointing, both modes.")
parser.add_argument("--mode", choices=["non-reentrant", "reentrant"], default="non-reentrant")
arguments = parser.parse_args()

torch.manual_seed(0)


class Block(nn.Module):
    """A small block that counts how often it runs."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.Tanh(), nn.Linear(4 * width, width))
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return x + self.layers(x)


class Model(nn.Module):
    """An input layer, two checkpointed blocks, an output layer."""

    def __init__(self, width, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.input = nn.Linear(width, width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])
        self.output = nn.Linear(width, 1)

    def forward(self, x):
        x = self.input(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.output(x)


model = Model(8, reentrant=arguments.mode == "reentrant")
inputs = torch.randn(4, 8)

loss = model(inputs).square().mean()
runs_after_forward = [block.runs for block in model.blocks]
loss.backward()
runs_after_backward = [block.runs for block in model.blocks]

assert runs_after_forward == [1, 1]
assert runs_after_backward == [2, 2]

hidden = model.input(inputs)
for block in model.blocks:
    hidden = block(hidden)  # the same without checkpointing
gradients = torch.autograd.grad(model.output(hidden).square().mean(), list(model.parameters()))
assert all(torch.allclose(parameter.grad, other) for parameter, other in zip(model.parameters(), gradients))

print(f"{arguments.mode}: loss {loss.item():.4f}, runs of each block: {runs_after_backward}")
