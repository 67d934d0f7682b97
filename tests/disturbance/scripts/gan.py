"""Two networks, two optimizers, gradient penalty by a second derivative, spectral norm and an average of the generator."""

import copy
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 2))
D = nn.Sequential(
    nn.utils.spectral_norm(nn.Linear(2, 8)), nn.LeakyReLU(0.2), nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1))
)
ema = copy.deepcopy(G).requires_grad_(False)
g_opt = torch.optim.Adam(G.parameters(), 1e-2, betas=(0.5, 0.9))
d_opt = torch.optim.Adam(D.parameters(), 1e-2, betas=(0.5, 0.9))
for step in range(4):
    for _ in range(2):
        real = torch.randn(8, 2) + 3
        fake = G(torch.randn(8, 4)).detach()
        eps = torch.rand(8, 1)
        mixed = (eps * real + (1 - eps) * fake).requires_grad_()
        (grad,) = torch.autograd.grad(D(mixed).sum(), mixed, create_graph=True)
        penalty = ((grad.norm(dim=1) - 1) ** 2).mean()
        d_loss = D(fake).mean() - D(real).mean() + 10 * penalty
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
    g_loss = -D(G(torch.randn(8, 4))).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), G.parameters()):
            p.lerp_(q, 0.1)
        for p, q in zip(ema.buffers(), G.buffers()):
            p.copy_(q)
    G.eval()
    with torch.inference_mode():
        sample = G(torch.ones(2, 4)).tolist()
    G.train()
    print(step, d_loss.item(), g_loss.item(), penalty.item(), sample)
