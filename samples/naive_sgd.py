"""One step of training, done wrong: the update itself is recorded.

`x1 = x1 - learning_rate * gradient` looks like gradient descent, and the numbers are right. But it runs while PyTorch
is recording. The new x1 is therefore not a leaf any more: it is the result of a subtraction, a `SubBackward0`, which
points at the old x1. With every step the graph grows by one subtraction for each parameter, the memory of all earlier
steps is kept, and `.grad` of the new x1 stays empty because only leaves collect gradients.

The remedy is to update inside `with torch.no_grad():` and in place (`x1 -= learning_rate * gradient`), which is what
`torch.optim.SGD` does: see `sgd.py`.

Try:
    python samples/naive_sgd.py
    gradviz render samples/naive_sgd.py            (the first step: still a small graph)
    gradviz render samples/naive_sgd.py --at 4     (the fourth step: three subtractions hang below each factor)
    gradviz render samples/naive_sgd.py:v          (after the last step)
"""

import torch

learning_rate = 0.1
x1 = torch.tensor(2.0, requires_grad=True)
x2 = torch.tensor(3.0, requires_grad=True)


def subtractions_below(tensor):
    """How many recorded updates lie between this tensor and its leaf."""
    count = 0
    function = tensor.grad_fn
    while function is not None and function.name().startswith("SubBackward"):
        count += 1
        function = function.next_functions[0][0]
    return count


for step in range(4):
    v = x1 * x2
    print(f"step {step}: v {v.item():.4f}, updates recorded below x1: {subtractions_below(x1)}")
    gradient1, gradient2 = torch.autograd.grad(v, [x1, x2])
    x1 = x1 - learning_rate * gradient1  # recorded: this is the mistake
    x2 = x2 - learning_rate * gradient2

v = x1 * x2  # what a fifth step would differentiate
assert not x1.is_leaf
assert subtractions_below(x1) == 4
print("x1 is a leaf:", x1.is_leaf)
