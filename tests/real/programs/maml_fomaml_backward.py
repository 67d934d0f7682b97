# MAML written with loss.backward() for the outer step and functional_call for the inner
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(3)
learner = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 3))
meta_opt = torch.optim.Adam(learner.parameters(), lr=1e-3)
ce = nn.CrossEntropyLoss()


def sample_task():
    centres = torch.randn(3, 5)
    y = torch.arange(3).repeat(4)
    return (centres[y] + 0.1 * torch.randn(12, 5), y), (centres[y] + 0.1 * torch.randn(12, 5), y)


for it in range(3):
    meta_opt.zero_grad()
    outer = 0.0
    for _ in range(2):
        (xs, ys), (xq, yq) = sample_task()
        fast = dict(learner.named_parameters())
        for _ in range(2):
            inner_loss = ce(functional_call(learner, fast, (xs,)), ys)
            grads = torch.autograd.grad(inner_loss, list(fast.values()), create_graph=True)
            fast = {name: p - 0.4 * g for (name, p), g in zip(fast.items(), grads)}
        outer = outer + ce(functional_call(learner, fast, (xq,)), yq)
    outer.backward()
    meta_opt.step()
    print(it, outer.item())
