"""Question: is the backward of my custom Function right?

The function computes x * sigmoid(x). Its backward forgets a term of the product rule. Training runs without an error,
and learns a little worse than it should: nothing but a comparison with the slope of forward shows it.

Try:
    gradviz check samples/questions/custom_backward.py
"""

import torch


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * s


torch.manual_seed(0)
weight = torch.randn(8, 4, requires_grad=True)
loss = Swish.apply(torch.randn(16, 8) @ weight).square().mean()
loss.backward()
print(f"loss {loss.item():.3f}")
