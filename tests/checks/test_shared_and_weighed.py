"""What shares parameters by accident, and what weighs log probabilities with a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

HEAD = "import copy, itertools\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\ntorch.manual_seed(0)\n"
LOOP = """
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(6):
    loss = net(torch.randn(8, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
STACK = f"""{HEAD}
class Stack(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)] * depth)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x
net = Stack()
{LOOP}"""
HEADS = f"""{HEAD}
def mlp(size):
    return nn.Sequential(nn.Linear(4, size), nn.ReLU(), nn.Linear(size, 1))
class Heads(nn.Module):
    names = "mean", "spread"
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict(dict.fromkeys(self.names, mlp(8)))
    def forward(self, x):
        return torch.cat([self.heads[name](x) for name in self.names], 1)
net = Heads()
{LOOP}"""
REPEATED = STACK.replace("[nn.Linear(4, 4)] * depth", "itertools.repeat(nn.Linear(4, 4), depth)")
HOOKED = f"""{HEAD}
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        for block in self.blocks:
            block.register_full_backward_hook(lambda module, given, out: tuple(g * 0.5 for g in given if g is not None))
    def forward(self, x):
        steps = [block.forward for block in self.blocks]
        for run in steps:
            x = run(x).tanh()
        return x
net = Encoder()
{LOOP}"""
BACKUP = f"""{HEAD}
net = nn.Linear(4, 4)
mean = {{key: value.clone() for key, value in net.state_dict().items()}}
{LOOP}
    kept = dict(net.state_dict().items())
    net.load_state_dict(mean)
    net.load_state_dict(kept)
"""
POLICY = f"""{HEAD}
from torch.distributions import Categorical
body, policy, value = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)
opt = torch.optim.Adam([*body.parameters(), *policy.parameters(), *value.parameters()], lr=0.01)
def surprise(reward, expected):
    return reward - expected
for step in range(4):
    h = body(torch.randn(16, 4)).tanh()
    found, reward, expected = Categorical(logits=policy(h)), torch.randn(16), value(h).squeeze(1)
    log_prob = found.log_prob(found.sample())
    gap = surprise(reward, expected)
    loss = -(gap * log_prob).mean() + F.mse_loss(expected, reward)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
GAUSSIAN = f"""{HEAD}
from torch.distributions import Normal
net, spread = nn.Linear(4, 1), nn.Parameter(torch.zeros(1))
opt = torch.optim.Adam([*net.parameters(), spread], lr=0.01)
for step in range(4):
    found = Normal(net(torch.randn(16, 4)), spread.exp())
    action = found.rsample()
    reward = -(action.detach() - 1).square()
    loss = -(found.log_prob(action) * reward).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SOFT = f"""{HEAD}
teacher, student = nn.Linear(4, 5), nn.Linear(4, 5)
opt = torch.optim.Adam([*teacher.parameters(), *student.parameters()], lr=0.01)
for step in range(4):
    x, y = torch.randn(8, 4), torch.randint(5, (8,))
    guide = (teacher(x) / 2).softmax(-1)
    log_q = (student(x) / 2).log_softmax(-1)
    kd = -(guide * log_q).sum(-1).mean()
    loss = F.cross_entropy(teacher(x), y) + kd
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
COLUMNS = f"""{HEAD}
from torch.distributions import Normal
critic = nn.Linear(4, 1)
opt = torch.optim.Adam(critic.parameters(), lr=0.01)
def wanted(reward):
    found = Normal(torch.zeros(8, 3), 1.0)
    return reward - 0.1 * found.log_prob(found.sample())
for step in range(4):
    error = critic(torch.randn(8, 4)) - wanted(torch.randn(8, 1))
    loss = error.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FAULTS = {
    "one layer three times": Fault(
        "no-effect", "* depth)", "[nn.Linear(4, 4) for _ in range(depth)]", "[nn.Linear(4, 4)] * depth",
        "[nn.Linear(4, 4) for _ in range(depth)]", STACK,
    ),
    "one layer that is repeated": Fault(
        "no-effect", "itertools.repeat(", "[nn.Linear(4, 4) for _ in range(depth)]", "itertools.repeat(nn.Linear(4, 4), depth)",
        "[nn.Linear(4, 4) for _ in range(depth)]", REPEATED,
    ),
    "one network for all keys": Fault(
        "no-effect", "dict.fromkeys", "{key: mlp(8) for key in self.names}", "dict.fromkeys(self.names, mlp(8))",
        "{key: mlp(8) for key in self.names}", HEADS,
    ),
    "forward() that is handed on": Fault(
        "no-effect", "block.forward", "leave out .forward", "block.forward for", "block for", HOOKED
    ),
    "a backup that is the parameters": Fault(
        "no-effect", "kept = dict", "copy.deepcopy(net.state_dict())", "dict(net.state_dict().items())",
        "copy.deepcopy(net.state_dict())", BACKUP,
    ),
    "a surprise that trains the judge": Fault(
        "loss-input", "loss = -(gap", "use (gap).detach()", "-(gap *", "-((gap).detach() *", POLICY
    ),
    "a sample that moves with its mean": Fault(
        "loss-input", "loss = -(found", "Draw with sample()", "found.rsample()", "found.sample()", GAUSSIAN
    ),
    "probabilities that a teacher gave": Fault(
        "loss-input", "kd = -(guide", "use (guide).detach()", "-(guide *", "-((guide).detach() *", SOFT
    ),
    "a column less three": Fault(
        "broadcast", "error = critic", ".sum(1, keepdim=True)", "log_prob(found.sample())",
        "log_prob(found.sample()).sum(1, keepdim=True)", COLUMNS,
    ),
}  # fmt: skip
MEMORY = f"""{HEAD}
net, rows = nn.Linear(4, 4), []
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def against(z):
    if not rows:
        return z.new_zeros(())
    return (z @ torch.cat(rows).t()).relu().mean()
for step in range(4):
    z = net(torch.randn(8, 4))
    loss = z.square().mean() + against(z)
    rows.append(z.detach().clone())
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
MOE = """
import torch
from torch import nn
torch.manual_seed(0)
gate, experts = nn.Linear(4, 3), nn.Linear(4, 15)
opt = torch.optim.SGD([*gate.parameters(), *experts.parameters()], lr=0.1)
x = torch.randn(32, 4); y = torch.randint(0, 5, (32,))
for step in range(3):
    weights = gate(x).softmax(1)
    logp = experts(x).view(32, 3, 5).log_softmax(-1)
    mixed = (weights.unsqueeze(-1) * logp).sum(1)
    loss = nn.functional.nll_loss(mixed, y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
REVERSEKL = """
import torch
from torch import nn
torch.manual_seed(0)
enc, prior = nn.Linear(4, 3), nn.Linear(2, 3)
dec = nn.Linear(3, 4)
opt = torch.optim.SGD([*enc.parameters(), *prior.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(32, 4); c = torch.randn(32, 2)
for step in range(3):
    q = enc(x).softmax(1); log_q = enc(x).log_softmax(1)
    log_prior = prior(c).log_softmax(1)
    kl = (q * log_q).sum(1) - (q * log_prior).sum(1)   # ELBO with a learned prior
    loss = nn.functional.mse_loss(dec(q), x) + kl.mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
STEP = """
import torch
from torch import nn
torch.manual_seed(0)
enc, vel = nn.Linear(4, 2), nn.Linear(2, 2)
opt = torch.optim.SGD([*enc.parameters(), *vel.parameters()], lr=0.1)
x = torch.randn(32, 4); mask = (torch.rand(32, 1) > 0.2).float(); y = x[:, :2]
for step in range(3):
    here = enc(x)
    there = here + 0.1 * vel(here)
    moved = (there - here) * mask
    loss = nn.functional.mse_loss(here, y) + (moved - y).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
SEVERAL = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(32, 4); ratings = x[:, :1] + 0.1 * torch.randn(32, 5)
for step in range(3):
    score = net(x).squeeze(1)
    loss = (score[:, None] - ratings).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
CLONES = """
import torch, copy
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(*map(copy.deepcopy, [nn.Linear(4, 4)] * 3))
shared = nn.Linear(4, 4)
net = nn.Sequential(net, shared, nn.Tanh(), shared, nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(32, 4); y = x[:, :1]
for step in range(3):
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
RIGHT = {
    "a layer that is shared by name": STACK.replace(
        "nn.ModuleList([nn.Linear(4, 4)] * depth)", "nn.ModuleList([own] * depth)"
    ).replace("        super().__init__()\n", "        super().__init__()\n        own = nn.Linear(4, 4)\n"),
    "activations at several places": STACK.replace(
        "nn.ModuleList([nn.Linear(4, 4)] * depth)", "nn.ModuleList([nn.Linear(4, 4), *[nn.Tanh()] * depth])"
    ),
    "modules that are called": HOOKED.replace("block.forward for", "block for"),
    "a backup that is copied": BACKUP.replace(
        "dict(net.state_dict().items())", "{k: v.clone() for k, v in net.state_dict().items()}"
    ),
    "a weight without a graph": POLICY.replace(
        "gap = surprise(reward, expected)", "gap = surprise(reward, expected.detach())"
    ),
    "a critic that is shown the sample": GAUSSIAN.replace(
        "found.log_prob(action) * reward", "found.log_prob(action) * 0.1 + (action - 1).square()"
    ),
    "probabilities of the same scores": SOFT.replace("teacher(x) / 2", "student(x) / 2"),
    "both ways": SOFT.replace(
        "    kd = ",
        "    other = -((student(x) / 2).softmax(-1) * (teacher(x) / 2).log_softmax(-1)).sum(-1).mean()\n    kd = other + ",
    ),
    "quantiles of one target": COLUMNS.replace("nn.Linear(4, 1)", "nn.Linear(4, 3)"),
    "experts that a gate weighs": MOE,
    "a divergence from a prior that is learned": REVERSEKL,
    "a step along a field": STEP,
    "ratings of several people": SEVERAL,
    "layers that are copied": CLONES,
    "a memory that is empty at first": MEMORY,
    "numbers of a function beside a layer that is shared": STACK.replace("[nn.Linear(4, 4)] * depth", "[own] * depth")
    .replace(
        "        super().__init__()\n",
        "        super().__init__()\n        own, self.scale = nn.Linear(4, 4), [first()] * 3\n",
    )
    .replace("class Stack", "def first():\n    return 1.0\nclass Stack"),
    "a focal loss": f"""{HEAD}
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    log_prob = net(torch.randn(8, 4)).log_softmax(1)[range(8), torch.randint(3, (8,))]
    loss = -((1 - log_prob.exp()) * log_prob).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", every_other(RIGHT))
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
