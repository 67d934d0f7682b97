"""Saved tensors moved to the CPU: `torch.autograd.graph.save_on_cpu`.

The tensors that the forward pass saves for the backward pass are often most of the memory a training step needs. On a
GPU, `save_on_cpu` is a ready-made pair of pack and unpack hooks: it copies each saved tensor to main memory and fetches
it back when its backward function runs. It costs time and gains room. On a CPU it works too, with nothing to gain, so
this script runs anywhere.

In the picture the saved tensors of the hidden layers are marked as packed by a hook: what the graph holds there is not
the tensor but the hook's own note of where it came from, and the copy.

Try:
    python samples/save_on_cpu.py
    gradviz saved samples/save_on_cpu.py
"""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
inputs = torch.randn(8, 16, device=device)

with torch.autograd.graph.save_on_cpu():
    prediction = model(inputs)
loss = prediction.square().mean()

loss.backward()
offloaded = [parameter.grad.clone() for parameter in model.parameters()]

plain = torch.autograd.grad(model(inputs).square().mean(), list(model.parameters()))
assert all(torch.allclose(one, other) for one, other in zip(offloaded, plain))
print(f"loss {loss.item():.4f}: same gradients with and without moving saved tensors to the CPU")
