"""Problem: the loss has no graph, so `backward()` refuses.

Somewhere between the model and the loss the history was dropped. `.detach()` does it on purpose. `.item()` does it too:
it gives a Python number, and a tensor made from a number has no past. The same goes for `.tolist()`,
`torch.tensor(tensor)`, `argmax` and everything inside `torch.no_grad()`.

The remedy is to compute the loss from the tensors themselves and to call `.item()` only on what is printed.

Try:
    python samples/problems/no_graph.py
    gradviz check samples/problems/no_graph.py
    gradviz render samples/problems/no_graph.py:prediction     (this one has a graph)
"""

import torch
from torch import nn

torch.manual_seed(0)

model = nn.Linear(3, 1)
inputs = torch.randn(4, 3)
target = torch.randn(4, 1)

prediction = model(inputs)
detached = prediction.detach()
distance = (detached - target).square().mean()
loss = torch.tensor(distance.item())

assert prediction.requires_grad and not distance.requires_grad and not loss.requires_grad

try:
    loss.backward()
    refused = False
except RuntimeError as error:
    refused = True
    print("backward refused:", error)
assert refused
