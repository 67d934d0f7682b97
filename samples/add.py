"""The smallest graph: two tensors and their sum.

`c = a + b` does two things at once. It computes the sum. And because `a` and `b` have `requires_grad=True`, PyTorch
also writes down how to come back from `c` to them: one backward function, an `AddBackward0`, kept as `c.grad_fn`.

That happens inside PyTorch's C++ code. Python's `+` calls `Tensor.__add__`, which calls the C++ operator `add`. Before
the numbers are computed, a layer in front of the operator makes the `AddBackward0`, links it to whatever made `a` and
`b`, and hangs it on the result. Nobody made `a` and `b` (they are leaves), so the links go to an `AccumulateGrad` each:
the backward function that adds an arriving gradient into `.grad`.

The links are `next_functions`, and the leaf behind an `AccumulateGrad` is its `variable`. So everything there is to see
can be reached from `c`, which is what a drawing of the graph does.

Try:
    python samples/add.py
    gradviz render samples/add.py
    gradviz tree samples/add.py
"""

import torch

torch.manual_seed(0)

a = torch.randn(3, 4, requires_grad=True)
b = torch.randn(3, 4, requires_grad=True)
c = a + b

to_a, to_b = (function for function, _ in c.grad_fn.next_functions)
assert to_a.variable is a
assert to_b.variable is b

assert isinstance(c, torch.autograd.Variable)  # older texts speak of Variables: every tensor is one

print("c was made by", c.grad_fn.name(), "and has shape", tuple(c.shape))
print("its inputs lead to", type(to_a).__name__, "of a and", type(to_b).__name__, "of b")
