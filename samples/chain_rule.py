"""The chain rule on a graph: y = (x + w) * (w + 1) at x = 2, w = 1.

Data are the nodes, operations make new data out of old. With a = x + w and b = w + 1 the result is y = a * b, here
3 * 2 = 6. How much does y change when w changes a little? There are two ways from y down to w:

    y -> a -> w    multiply the derivatives on the way:  dy/da * da/dw = b * 1 = 2
    y -> b -> w                                          dy/db * db/dw = a * 1 = 3

Add up what arrives along every path: dy/dw = 2 + 3 = 5. Only one path leads to x, through a, so dy/dx = b = 2.
`backward()` does the same sum, but visits every node once instead of walking every path.

The graph is dynamic: it is made anew while these lines run, so it is whatever Python did this time.

After `backward()` only leaves (tensors that no operation made) keep a gradient. The gradients of a, b and y were used
on the way and let go; `a.retain_grad()` would have kept a's. `retain_graph=True` keeps the numbers that the graph
saved, so that y can be looked at, or differentiated, once more.

Try:
    python samples/chain_rule.py
    gradviz render samples/chain_rule.py
    gradviz paths samples/chain_rule.py --to w
    gradviz flow samples/chain_rule.py
"""

import warnings

import torch

x = torch.tensor(2.0, requires_grad=True)
w = torch.tensor(1.0, requires_grad=True)

a = torch.add(w, x)
b = torch.add(w, 1)
y = torch.mul(a, b)

y.backward(retain_graph=True)

print(f"{'tensor':<8}{'value':<8}{'is_leaf':<9}{'grad':<8}grad_fn")
for name, tensor in {"w": w, "x": x, "a": a, "b": b, "y": y}.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that the gradient of a non-leaf is not there
        gradient = None if tensor.grad is None else tensor.grad.item()
    maker = None if tensor.grad_fn is None else tensor.grad_fn.name()
    print(f"{name:<8}{tensor.item():<8}{tensor.is_leaf!s:<9}{gradient!s:<8}{maker}")

assert y.item() == 6
assert w.grad.item() == 5
assert x.grad.item() == 2
