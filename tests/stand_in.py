"""What the pages call train.py: a script with a model, a few steps, and the options that they give it."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--depth", type=int, default=1)
parser.add_argument("--batch-size", type=int, default=4)
options = parser.parse_args()
batch_size = options.batch_size

torch.manual_seed(0)
w = torch.ones(8, requires_grad=True)
model = torch.nn.Sequential()
for _ in range(options.depth):
    model.extend([torch.nn.Linear(8, 8), torch.nn.ReLU()])
model.register_parameter("weight", torch.nn.Parameter(torch.ones(8)))
optimizer = torch.optim.SGD([*model.parameters(), w], lr=0.1)
for _ in range(options.epochs):
    optimizer.zero_grad()
    loss = (model(torch.rand(batch_size, 8)) * w * model.weight).square().mean()
    loss.backward()
    optimizer.step()
