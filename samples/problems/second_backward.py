"""Problem: going backward through a graph that is used up.

A recurrent network reads a long sequence in pieces and does a training step after each. The state is carried from piece
to piece, and with it its history: the second loss hangs on the graph of the first piece. The first `backward()` has
already freed what that graph had saved, so the second one fails: "Trying to backward through the graph a second time".

The message recommends `retain_graph=True`. Here that is the wrong cure: every step would go back to the very beginning.
The remedy is to cut the history between the pieces: `state = state.detach()`.

Try:
    python samples/problems/second_backward.py
    gradviz check samples/problems/second_backward.py
    gradviz render samples/problems/second_backward.py --at 2     (the freed part is marked)
"""

import torch
from torch import nn

torch.manual_seed(0)

cell = nn.RNNCell(4, 8)
output = nn.Linear(8, 1)
sequence = torch.randn(12, 2, 4)
state = torch.zeros(2, 8)
finished_steps = 0
refused = False

try:
    for piece in sequence.split(4):
        for element in piece:
            state = cell(element, state)
        loss = output(state).square().mean()
        loss.backward()
        finished_steps += 1
        # missing here: state = state.detach()
except RuntimeError as error:
    refused = True
    print(f"backward refused after {finished_steps} step:", str(error).split(". ")[0])

assert refused and finished_steps == 1
