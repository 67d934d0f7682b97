"""A script with a neighbour and a file: it fits a line to the points in `data.csv`.

It imports `model.py` from its own folder, which works because Python looks for modules next to the script. And it opens
`data.csv` in the current folder, so it wants to be run from there. A tool that runs it must leave both as they are.

Try:
    cd samples/helpers_demo
    python train.py
    gradviz render train.py
    gradviz render train.py -- --steps 5
"""

import argparse
import csv
from pathlib import Path

import torch
from model import Line

parser = argparse.ArgumentParser(description="Fit a line to data.csv.")
parser.add_argument("--steps", type=int, default=100)
arguments = parser.parse_args()

with Path("data.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))
x = torch.tensor([float(row["x"]) for row in rows])
y = torch.tensor([float(row["y"]) for row in rows])

line = Line()
optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
for _ in range(arguments.steps):
    loss = (line(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"after {arguments.steps} steps: slope {line.slope.item():.3f}, intercept {line.intercept.item():.3f}")
