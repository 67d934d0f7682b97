"""Question: "One of the differentiated Tensors appears to not have been used in the graph": which?

torch.autograd.grad is asked for the gradient of three tensors; the loss depends on two of them. The message of torch
says at most the position of the third in the list, and not why the loss does not depend on it.

Try:
    gradviz check samples/questions/not_used.py
"""

import torch

torch.manual_seed(0)
x = torch.randn(16, 2)
weight, bias, offset = (torch.randn(2, requires_grad=True) for _ in range(3))

prediction = x * weight + bias
loss = prediction.square().mean()
print(f"loss {loss.item():.3f}")
gradients = torch.autograd.grad(loss, [weight, bias, offset])
