"""Model ensembling with torch.func: stack_module_state, functional_call and vmap; plus per-sample gradients."""

import copy

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap


class SimpleMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(20, 16), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


torch.manual_seed(0)
models = [SimpleMLP() for _ in range(4)]
params, buffers = stack_module_state(models)
base_model = copy.deepcopy(models[0]).to("meta")
optimizer = torch.optim.SGD(params.values(), lr=0.1)


def fmodel(params, buffers, x):
    return functional_call(base_model, (params, buffers), (x,))


for step in range(3):
    data, targets = torch.randn(8, 20), torch.randint(0, 5, (8,))
    predictions = vmap(fmodel, in_dims=(0, 0, None))(params, buffers, data)
    loss = nn.functional.cross_entropy(predictions.flatten(0, 1), targets.repeat(4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# per-sample gradients of the first member
single = {name: p.detach()[0] for name, p in params.items()}


def compute_loss(p, sample, target):
    return nn.functional.cross_entropy(functional_call(base_model, p, (sample.unsqueeze(0),)), target.unsqueeze(0))


per_sample = vmap(grad(compute_loss), in_dims=(None, 0, 0))(single, data, targets)
print({name: tuple(g.shape) for name, g in per_sample.items()})
