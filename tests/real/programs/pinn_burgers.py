"""Physics-informed network for Burgers' equation. Everything, the loss too, is a method of one class."""

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import grad

np.random.seed(1234)
torch.manual_seed(1234)


class DNN(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.depth = len(layers) - 1
        self.activation = nn.Tanh
        modules = []
        for i in range(self.depth - 1):
            modules += [nn.Linear(layers[i], layers[i + 1]), self.activation()]
        modules.append(nn.Linear(layers[-2], layers[-1]))
        self.layers = nn.Sequential(*modules)

    def forward(self, x):
        return self.layers(x)


class PhysicsInformedNN:
    def __init__(self, X_u, u, X_f, layers, lb, ub, nu):
        self.lb, self.ub = torch.tensor(lb).float(), torch.tensor(ub).float()
        self.x_u = torch.tensor(X_u[:, 0:1]).float().requires_grad_(True)
        self.t_u = torch.tensor(X_u[:, 1:2]).float().requires_grad_(True)
        self.x_f = torch.tensor(X_f[:, 0:1]).float().requires_grad_(True)
        self.t_f = torch.tensor(X_f[:, 1:2]).float().requires_grad_(True)
        self.u = torch.tensor(u).float()
        self.nu = nu
        self.dnn = DNN(layers)
        self.optimizer = torch.optim.Adam(self.dnn.parameters(), lr=1e-3)
        self.iter = 0

    def net_u(self, x, t):
        X = torch.cat([x, t], dim=1)
        X = 2.0 * (X - self.lb) / (self.ub - self.lb) - 1.0
        return self.dnn(X)

    def net_f(self, x, t):
        u = self.net_u(x, t)
        u_t = grad(u, t, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_x = grad(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_xx = grad(u_x, x, grad_outputs=torch.ones_like(u_x), retain_graph=True, create_graph=True)[0]
        return u_t + u * u_x - self.nu * u_xx

    def loss_func(self):
        u_pred = self.net_u(self.x_u, self.t_u)
        f_pred = self.net_f(self.x_f, self.t_f)
        loss_u = torch.mean((self.u - u_pred) ** 2)
        loss_f = torch.mean(f_pred**2)
        return loss_u + loss_f, loss_u, loss_f

    def train(self, epochs):
        self.dnn.train()
        for _ in range(epochs):
            self.optimizer.zero_grad()
            loss, loss_u, loss_f = self.loss_func()
            loss.backward()
            self.optimizer.step()
            self.iter += 1
            print(
                "Iter %d, Loss: %.5e, Loss_u: %.5e, Loss_f: %.5e"
                % (self.iter, loss.item(), loss_u.item(), loss_f.item())
            )


nu = 0.01 / np.pi
X_u = np.stack([np.random.uniform(-1, 1, 30), np.zeros(30)], axis=1)
u = -np.sin(np.pi * X_u[:, 0:1])
X_f = np.random.uniform([-1, 0], [1, 1], size=(60, 2))
model = PhysicsInformedNN(X_u, u, X_f, [2, 16, 16, 16, 1], [-1, 0], [1, 1], nu)
model.train(3)
