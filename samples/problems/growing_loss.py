"""Problem: a running total that keeps every graph alive.

`total_loss += loss` is meant for a report at the end. But `loss` is a tensor with a graph, so the sum has one too: it
hangs on the loss of every step, and none of their graphs can go away. `backward()` has freed the saved tensors by then,
but the nodes themselves stay, and with every step there are more of them. Memory grows slowly until the end of the
epoch. It grows fast where the total also includes a loss that nobody called `backward()` on, such as one of a
validation pass without `torch.no_grad()`: then the saved tensors stay too.

The remedy is `total_loss += loss.item()`, or `loss.detach()`.

Try:
    python samples/problems/growing_loss.py
    gradviz check samples/problems/growing_loss.py
    gradviz render samples/problems/growing_loss.py:total_loss
"""

import torch
from torch import nn

torch.manual_seed(0)

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
total_loss = 0.0
steps = 8

for _ in range(steps):
    inputs = torch.randn(16, 4)
    loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total_loss += loss  # should be loss.item()

additions = 0
function = total_loss.grad_fn
while function is not None and function.name() == "AddBackward0":
    additions += 1
    function = function.next_functions[0][0]

assert additions == steps
print(f"average loss {total_loss.item() / steps:.4f}; additions kept in the graph of the total: {additions}")
