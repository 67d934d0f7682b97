"""Weight norm old and new, orthogonal weights, an own parametrization, pruning, lazy layers, tied weights."""

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
import warnings

warnings.filterwarnings("ignore", category=FutureWarning)

torch.manual_seed(0)


class Symmetric(nn.Module):
    calls = 0

    def forward(self, x):
        Symmetric.calls += 1
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


net = nn.ModuleDict(
    {
        "old": nn.utils.weight_norm(nn.Linear(4, 4)),
        "new": parametrizations.weight_norm(nn.Linear(4, 4)),
        "orth": parametrizations.orthogonal(nn.Linear(4, 4)),
        "sym": nn.Linear(4, 4, bias=False),
        "lazy": nn.LazyLinear(4),
        "spec": nn.utils.spectral_norm(nn.Conv1d(4, 4, 1)),
    }
)
parametrize.register_parametrization(net["sym"], "weight", Symmetric())
prune.random_unstructured(net["new"], "bias", amount=0.5)
net["tied"] = nn.Linear(4, 4)
net["tied"].weight = net["old"].weight_v
x = torch.randn(3, 4)
net["lazy"](x)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(4):
    h = x
    for name in ("old", "new", "orth", "sym", "lazy", "tied"):
        h = torch.tanh(net[name](h))
    with parametrize.cached():
        h = net["sym"](net["sym"](h))
    h = net["spec"](h[..., None])[..., 0]
    loss = h.square().sum() + net["sym"].weight.sum() * 1e-3
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), Symmetric.calls, net["orth"].weight.det().item())
prune.remove(net["new"], "bias")
parametrize.remove_parametrizations(net["sym"], "weight")
nn.utils.remove_weight_norm(net["old"])
print(sorted(net.state_dict()))
