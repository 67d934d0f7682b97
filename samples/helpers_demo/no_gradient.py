"""A script without any graph: none of its tensors can be differentiated, each for another reason.

Try:
    python samples/helpers_demo/no_gradient.py
    gradviz render samples/helpers_demo/no_gradient.py     (says of every tensor why it has no graph)
"""

import torch

constant = torch.ones(3)  # nobody asked for a gradient
doubled = constant * 2  # made from tensors that need none
leaf = torch.ones(3, requires_grad=True)  # a leaf: nothing was computed from it
detached = (leaf * 2).detach()  # cut off
with torch.no_grad():
    unrecorded = leaf * 2  # recording was off
position = (leaf * 2).argmax()  # an index has no derivative

tensors = [constant, doubled, leaf, detached, unrecorded, position]
print("tensors with a graph:", sum(tensor.grad_fn is not None for tensor in tensors))
