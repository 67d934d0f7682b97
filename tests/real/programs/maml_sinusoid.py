"""Model-agnostic meta-learning on sinusoids, second order."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class MAMLModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))

    def forward(self, x):
        return self.model(x)

    def parameterised(self, x, weights):
        # like forward, but with the given weights
        x = F.relu(F.linear(x, weights[0], weights[1]))
        x = F.relu(F.linear(x, weights[2], weights[3]))
        return F.linear(x, weights[4], weights[5])


class SineTask:
    def __init__(self):
        self.amplitude = torch.empty(1).uniform_(0.1, 5.0)
        self.phase = torch.empty(1).uniform_(0, math.pi)

    def sample_data(self, size=10):
        x = torch.empty(size, 1).uniform_(-5, 5)
        return x, self.amplitude * torch.sin(x + self.phase)


class MAML:
    def __init__(self, model, inner_lr=0.01, meta_lr=1e-3, K=10, inner_steps=1, tasks_per_meta_batch=4):
        self.model = model
        self.weights = list(model.parameters())
        self.meta_optimiser = torch.optim.Adam(self.weights, meta_lr)
        self.inner_lr, self.K = inner_lr, K
        self.inner_steps, self.tasks_per_meta_batch = inner_steps, tasks_per_meta_batch
        self.criterion = nn.MSELoss()

    def inner_loop(self, task):
        temp_weights = [w.clone() for w in self.weights]
        X, y = task.sample_data(self.K)
        for step in range(self.inner_steps):
            loss = self.criterion(self.model.parameterised(X, temp_weights), y) / self.K
            grad = torch.autograd.grad(loss, temp_weights, create_graph=True)
            temp_weights = [w - self.inner_lr * g for w, g in zip(temp_weights, grad)]
        X, y = task.sample_data(self.K)
        return self.criterion(self.model.parameterised(X, temp_weights), y) / self.K

    def main_loop(self, num_iterations):
        for iteration in range(1, num_iterations + 1):
            meta_loss = 0
            for i in range(self.tasks_per_meta_batch):
                meta_loss += self.inner_loop(SineTask())
            meta_grads = torch.autograd.grad(meta_loss, self.weights)
            for w, g in zip(self.weights, meta_grads):
                w.grad = g
            self.meta_optimiser.step()
            print("{}/{}. loss: {}".format(iteration, num_iterations, meta_loss.item() / self.tasks_per_meta_batch))


torch.manual_seed(0)
maml = MAML(MAMLModel(), inner_steps=2)
maml.main_loop(num_iterations=3)
