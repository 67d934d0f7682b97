"""A recurrent network: one cell, used again at every step.

`nn.LSTMCell` reads one element of a sequence and its own two states, and gives the next states. Called in a loop, it
makes a graph that is as deep as the sequence is long, in which the same four parameters are used at every step; their
gradient is the sum over all steps ("backpropagation through time").

Such graphs get deep fast (`--steps 2000`), and a drawing with one box per parameter sends a line from every step to
each of these boxes.

Try:
    python samples/lstm.py
    gradviz render samples/lstm.py
    gradviz render samples/lstm.py --depth all
    gradviz tree samples/lstm.py -- --steps 1000 --layers 2
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser(description="An LSTM cell in a loop.")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--batch", type=int, default=4)
arguments = parser.parse_args()

torch.manual_seed(0)


class Recurrent(nn.Module):
    """A stack of LSTM cells and a linear output, stepped by hand."""

    def __init__(self, layers, width):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))
        self.output = nn.Linear(width, 1)

    def forward(self, sequence):
        zeros = sequence.new_zeros(sequence.shape[1:])
        states = [(zeros, zeros) for _ in self.cells]
        for element in sequence:
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(element, states[layer])
                element = states[layer][0]
        return self.output(element).squeeze(1)


model = Recurrent(arguments.layers, arguments.width)
sequence = torch.randn(arguments.steps, arguments.batch, arguments.width)
target = sequence[:, :, 0].mean(dim=0)

prediction = model(sequence)
loss = nn.functional.mse_loss(prediction, target)
loss.backward()

assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
print(f"{arguments.steps} steps, {arguments.layers} layers: loss {loss.item():.4f}")
print(f"largest gradient of the first cell's recurrent weight {model.cells[0].weight_hh.grad.abs().max().item():.6f}")
