"""Question: "Trying to backward through the graph a second time": why?

The hidden state of an LSTM is carried from one piece of a sequence to the next, with its graph. The second backward()
reaches into the graph of the first piece, which the first backward() has freed.

Try:
    gradviz check samples/questions/carried_state.py
"""

import torch
from torch import nn

torch.manual_seed(0)
lstm, head = nn.LSTM(4, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*lstm.parameters(), *head.parameters()], lr=0.1)
state = None

for piece in torch.randn(40, 2, 4).split(10):
    output, state = lstm(piece, state)
    loss = head(output).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.3f}")
