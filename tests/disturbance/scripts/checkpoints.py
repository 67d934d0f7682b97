"""Both kinds of checkpoint, nested, with dropout, counted recomputations and a context function."""

import contextlib
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
runs = []


class Block(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.lin, self.drop = name, nn.Linear(8, 8), nn.Dropout(0.2)

    def forward(self, x):
        runs.append((self.name, torch.is_grad_enabled()))
        return x + self.drop(torch.tanh(self.lin(x)))


blocks = nn.ModuleList(Block(i) for i in range(4))
seq = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)])
opt = torch.optim.Adam([*blocks.parameters(), *seq.parameters()], 1e-2)


@contextlib.contextmanager
def said(what):
    runs.append(what)
    yield


for step in range(4):
    x = torch.randn(4, 8, requires_grad=True)
    h = checkpoint(blocks[0], x, use_reentrant=True)
    h = checkpoint(blocks[1], h, use_reentrant=False)
    h = checkpoint(
        lambda t: checkpoint(blocks[3], blocks[2](t), use_reentrant=False),
        h,
        use_reentrant=False,
        context_fn=lambda: (said("forward"), said("again")),
    )
    h = checkpoint_sequential(seq, 2, h, use_reentrant=False)
    loss = h.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), x.grad.norm().item(), len(runs), runs[-9:])
