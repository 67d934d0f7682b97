"""A function of your own, with its own backward: `Exp`.

PyTorch knows the derivative of every operation it ships. For an operation it does not know, write a subclass of
`torch.autograd.Function` with two static methods. `forward` computes the result and puts on `ctx` what the backward
will need; `backward` gets the gradient of the result and returns the gradient of the input.

The derivative of exp(x) is exp(x), the result itself, so that is what is saved, with `ctx.save_for_backward`. A plain
attribute of `ctx` would give the same numbers. But PyTorch could not notice when somebody changes the tensor in place,
and the result and its node would hold each other alive.

`Exp.apply` runs `forward` and puts one node named after the class into the graph: `ExpBackward`. What `forward` does
inside is not recorded. (`apply` itself is written in C++.)

Try:
    python samples/exp_function.py
    gradviz render samples/exp_function.py
    gradviz saved samples/exp_function.py
"""

import torch

torch.manual_seed(0)


class Exp(torch.autograd.Function):
    """e to the power of every element."""

    @staticmethod
    def forward(ctx, exponent):
        power = exponent.exp()
        ctx.save_for_backward(power)
        return power

    @staticmethod
    def backward(ctx, gradient):
        (power,) = ctx.saved_tensors
        return gradient * power


x = torch.randn(4, requires_grad=True)
y = Exp.apply(x)
total = y.sum()

total.backward()
assert torch.equal(x.grad, x.detach().exp())
print("made by", y.grad_fn.name())
print("gradient of x equals exp(x):", [round(value, 4) for value in x.grad.tolist()])
