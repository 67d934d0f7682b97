"""Question: why is `.grad` None?

A temperature is to be learned. But `.item()` makes a Python number of it, and a number has no graph: the loss depends
on the value of the temperature, and autograd does not know. Nothing fails; the temperature just never changes.

Try:
    gradviz why samples/questions/none_grad.py temperature
    gradviz check samples/questions/none_grad.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 3)
temperature = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.Adam([*net.parameters(), temperature])

for step in range(3):
    x, target = torch.randn(16, 8), torch.randint(3, (16,))
    logits = net(x)
    scaled = logits / temperature.item()
    loss = nn.functional.cross_entropy(scaled, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("temperature.grad is", temperature.grad)
