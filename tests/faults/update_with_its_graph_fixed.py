import torch

x = torch.tensor(3.0, requires_grad=True)
for n in range(8):
    f = x**3 - 2 * x
    (g,) = torch.autograd.grad(f, x, create_graph=True)
    (h,) = torch.autograd.grad(g, x, create_graph=True)
    x = (x - g / h).detach().requires_grad_()
print(x)
