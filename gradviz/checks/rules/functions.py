"""The check on custom Functions: whether their backward is the derivative of their forward."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.misuse import told

_ROWS = {
    "other slope": Row(
        "backward() of {0} is not the derivative of its forward()",
        "for input {1}, what {code} returns is {2} the slope of forward(), measured in float64 along two random directions",
        "In {line}, return grad_output times the derivative of what forward() computes, for each input.",
    ),
    "forgets mask": Row(
        "backward() of {0} passes gradients where its forward() is flat",
        "what {code} returns is the slope of forward() where it has one, and goes on where forward() does not change, as below a "
        "relu or outside of a clamp: a mask is forgotten",
        "In {line}, multiply by the mask: grad_output * ((x > low) & (x < high)).",
    ),
    "gives none": Row(
        "backward() of {0} returns no gradient for input {1}, on which its forward() depends",
        "{code} returns None for input {1}, which requires grad: it is never trained through {0}",
        "In {line}, return its gradient in place of None; or detach that input, if it is not to be trained.",
    ),
    "ignores gradient": Row(
        "backward() of {0} does not use the gradient that it is given",
        "{code} returns the same numbers when grad_output is doubled: what the layers behind and the loss ask for is lost",
        "In {line}, return grad_output times the derivative: what it returns now, multiplied by grad_output.",
    ),
    "keeps state": Row(
        "backward() of {0} depends on a later forward()",
        "the gradients of one application change when forward() runs again with other numbers: {0} keeps them on the class or "
        "in a global variable, where the next call writes over them",
        "Keep tensors on ctx: ctx.save_for_backward(x) in forward(), and ctx.saved_tensors in backward().",
    ),
    "second slope": Row(
        "a gradient that goes through {0} is differentiated again, and wrong: its backward() uses what has no graph",
        "{code}: what forward() computes and keeps on ctx has no graph, so create_graph=True does not see that it depends on the "
        "input; the derivative of backward(), measured in float64, is another one",
        "In {line}, compute it again from ctx.saved_tensors, of inputs that forward() gives to ctx.save_for_backward().",
    ),
    "writes gradient": Row(
        "backward() of {0} changes grad_output in place",
        "{code} writes into the gradient that it is given, which other functions of the graph may hold, too",
        "Compute a new tensor: grad_output * mask in place of grad_output.mul_(mask). Or change grad_output.clone().",
    ),
}  # fmt: skip


@check(
    "wrong-backward",
    "warning",
    "backward() of a custom Function is not the derivative of its forward()",
    reads_saved=True,
)
def wrong_backward(context: CheckContext) -> Diagnoses:
    """A custom `torch.autograd.Function` returns gradients that do not belong to what its `forward()` computes.

    Nothing fails: the model trains along the wrong direction. Likewise where backward() needs what the last forward() has left on
    the class, and where it changes the gradient that it is given.

    How it is found: when such a Function of yours is applied for the first time to inputs of a shape, it is replayed in a child
    process (one thread, 5 seconds at most), in double precision: forward() a little to both sides of the inputs, and backward()
    once. A forward that is flat or hands its input on, and a backward that hands its gradient on and keeps nothing,
    are left alone, as in straight-through estimators and gradient reversal.
    Not where there is no `fork`, and not with CUDA or several ranks, unless `--run-custom` says so.

    What to do: compare with `torch.autograd.gradcheck`, and correct `backward()`.

    When to ignore it: when the gradient is another one on purpose, as of a surrogate.

    ```python
    import torch


    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * 2 * x**2


    w = torch.ones(3, requires_grad=True)
    loss = Cube.apply(w).sum()
    loss.backward()
    ```
    """
    yield from told(context, _ROWS)
