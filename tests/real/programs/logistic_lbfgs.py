# logistic regression by hand, L-BFGS with a closure and strong Wolfe line search
import torch

torch.manual_seed(0)
X = torch.randn(100, 5, dtype=torch.double)
w_true = torch.randn(5, dtype=torch.double)
y = (X @ w_true + 0.3 * torch.randn(100, dtype=torch.double) > 0).double()

w = torch.zeros(5, dtype=torch.double, requires_grad=True)
b = torch.zeros(1, dtype=torch.double, requires_grad=True)
optimizer = torch.optim.LBFGS([w, b], lr=1, max_iter=5, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    z = X @ w + b
    nll = torch.nn.functional.softplus(z) - y * z
    objective = nll.mean() + 1e-3 * (w**2).sum()
    objective.backward()
    return objective


for i in range(3):
    loss = optimizer.step(closure)
    print("outer %d loss %.6f |w| %.3f" % (i, loss.item(), w.norm().item()))
