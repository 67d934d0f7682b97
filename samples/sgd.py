"""One step of training, done right: forward, backward, optimizer.

Forward: `v = x1 * x2` makes a `MulBackward0`. It is linked to what made its inputs: the `AccumulateGrad` of a leaf, or
the `grad_fn` of a result in between (`set_next_edges` in PyTorch's C++ code). Then it is kept as `v.grad_fn`
(`set_history`). A link is a pair: the next node, and which of that node's outputs is meant. The node also saves
x1 and x2, because the derivative for one factor is the other factor.

Backward: `v.backward()` starts at `v.grad_fn` with the gradient 1, calls every backward function once, and each
`AccumulateGrad` adds what arrives into the leaf's `.grad`. "Adds" is meant: without `zero_grad()` the gradient of the
last step would still be in there.

Optimizer: SGD does `x -= learning_rate * x.grad` in place, and with recording switched off. So x1 and x2 stay leaves,
and the graph of the next step is as small as that of the first. `naive_sgd.py` shows what happens otherwise.

Try:
    python samples/sgd.py
    gradviz render samples/sgd.py
    gradviz render samples/sgd.py --at 3
"""

import torch

x1 = torch.tensor(2.0, requires_grad=True)
x2 = torch.tensor(3.0, requires_grad=True)
optimizer = torch.optim.SGD([x1, x2], lr=0.1)

for step in range(3):
    v = x1 * x2
    optimizer.zero_grad()
    v.backward()
    gradients = (x1.grad.item(), x2.grad.item())
    optimizer.step()
    print(f"step {step}: v {v.item():.4f}, gradients {gradients[0]:.4f} {gradients[1]:.4f}")
    if step == 0:
        assert gradients == (3.0, 2.0)  # each gradient is the other factor
        assert torch.isclose(x1, torch.tensor(1.7)) and torch.isclose(x2, torch.tensor(2.8))

assert x1.is_leaf and x2.is_leaf
print("x1 and x2 are still leaves")
