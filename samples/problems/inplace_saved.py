"""Problem: a tensor that the backward pass needs was changed in place.

`exp` saves its result, because the result is also its derivative. `activation.add_(1)` then changes that very tensor.
Every tensor has a version counter that goes up with each in-place change. The graph remembers the version it saved, and
`backward()` refuses when it finds another one: better no gradient than a wrong one. The error message tells the shape
and the operation that saved the tensor, but neither the tensor's name nor the line that changed it.

The remedy is `activation = activation + 1`, which makes a new tensor and leaves the saved one alone.

Try:
    python samples/problems/inplace_saved.py
    gradviz check samples/problems/inplace_saved.py
    gradviz saved samples/problems/inplace_saved.py
"""

import torch

torch.manual_seed(0)

x = torch.randn(3, 4, requires_grad=True)
activation = torch.exp(x)
version_saved = activation._version
activation.add_(1)
loss = activation.sum()

assert (version_saved, activation._version) == (0, 1)

try:
    loss.backward()
    refused = False
except RuntimeError as error:
    refused = True
    print("backward refused:", error)
assert refused and x.grad is None
