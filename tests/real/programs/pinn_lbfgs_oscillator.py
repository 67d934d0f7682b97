# damped oscillator; L-BFGS with a closure
import torch
import torch.nn as nn

torch.manual_seed(123)
pinn = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
t_boundary = torch.tensor(0.0).view(-1, 1).requires_grad_(True)
t_physics = torch.linspace(0, 1, 20).view(-1, 1).requires_grad_(True)
d, w0 = 2, 20
mu, k = 2 * d, w0**2
optimiser = torch.optim.LBFGS(pinn.parameters(), lr=0.1, max_iter=4)


def closure():
    optimiser.zero_grad()
    lambda1, lambda2 = 1e-1, 1e-4
    # compute boundary loss
    u = pinn(t_boundary)
    loss1 = (torch.squeeze(u) - 1) ** 2
    dudt = torch.autograd.grad(u, t_boundary, torch.ones_like(u), create_graph=True)[0]
    loss2 = (torch.squeeze(dudt) - 0) ** 2
    # compute physics loss
    u = pinn(t_physics)
    dudt = torch.autograd.grad(u, t_physics, torch.ones_like(u), create_graph=True)[0]
    d2udt2 = torch.autograd.grad(dudt, t_physics, torch.ones_like(dudt), create_graph=True)[0]
    loss3 = torch.mean((d2udt2 + mu * dudt + k * u) ** 2)
    loss = loss1 + lambda1 * loss2 + lambda2 * loss3
    loss.backward()
    return loss


for i in range(2):
    loss = optimiser.step(closure)
    print(i, float(loss))
