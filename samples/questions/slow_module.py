"""Question: which module makes backward slow?

Three blocks run one after the other. One of them works in a loop over 200 slices: its forward is slow, and its backward
is slower still, since the gradient of each slice fills a whole tensor.

Try:
    gradviz tree samples/questions/slow_module.py --time
"""

import torch
from torch import nn


class Scan(nn.Module):
    def forward(self, x):
        state, states = torch.zeros(64), []
        for row in x:
            state = 0.9 * state + row
            states.append(state)
        return torch.stack(states)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 64), Scan(), nn.Linear(64, 1))
for step in range(6):
    net(torch.randn(200, 64)).square().mean().backward()
print("6 steps")
