"""Samples that other layers use, losses that are averaged too early, backward() of modules, what hooks keep, items of a dict, steps
of what is frozen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

BOTTLENECK = """
import torch
from torch import nn
torch.manual_seed(0)
class Bottleneck(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.out = nn.Linear(4, 3), nn.Linear(3, 1)
        self.log_std = nn.Parameter(torch.zeros(3))
    def forward(self, x):
        mean = self.mean(x)
        std = self.log_std.exp().expand_as(mean)
        z = torch.normal(mean, std)
        return self.out(z), (mean.square() + std.square() - std.log()).mean()
net = Bottleneck()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    y, kl = net(torch.randn(8, 4))
    loss = (y - 1).square().mean() + 0.01 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
POLICY = """
import torch
from torch import nn
torch.manual_seed(0)
policy, critic, log_std = nn.Linear(4, 2), nn.Linear(6, 1), nn.Parameter(torch.zeros(2))
opt = torch.optim.SGD([*policy.parameters(), *critic.parameters(), log_std], lr=0.01)
for step in range(3):
    x = torch.randn(8, 4)
    mean = policy(x)
    std = log_std.exp().expand_as(mean)
    action = torch.normal(mean, std)
    reward = -action.square().sum(1).detach()
    log_prob = (-((action - mean) / std).square() / 2 - std.log()).sum(1)
    value = critic(torch.cat([x, action], 1)).squeeze(1)
    loss = (value - reward).square().mean() - (log_prob * (reward - value.detach())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
GATED = """
import torch
from torch import nn
torch.manual_seed(0)
body, gate, head = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(3, 1)
opt = torch.optim.SGD([*body.parameters(), *gate.parameters(), *head.parameters()], lr=0.1)
for step in range(3):
    x = torch.randn(8, 4)
    p = gate(x).sigmoid()
    mask = torch.bernoulli(p)
    loss = (head(body(x) * mask) - 1).square().mean() + 0.1 * p.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WEIGHED = """
import torch
from torch import nn
torch.manual_seed(0)
net, criterion = nn.Linear(4, 3), nn.CrossEntropyLoss()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def loss_of(scores, targets, weights):
    loss = criterion(scores, targets)
    return (weights * loss).sum() / weights.sum()
for step in range(3):
    loss = loss_of(net(torch.randn(8, 4)), torch.randint(3, (8,)), torch.rand(8))
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
REVERSED = """
import torch
from torch import nn
torch.manual_seed(0)
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, gradient):
        return -gradient
class Reversal(nn.Module):
    def forward(self, x):
        return x
    def backward(self, gradient):
        return -gradient
class Adversary(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.reversal = nn.Linear(4, 3), Reversal()
        self.head, self.domain = nn.Linear(3, 1), nn.Linear(3, 1)
    def forward(self, x):
        h = self.body(x).tanh()
        return self.head(h), self.domain(self.reversal(h))
net = Adversary()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    y, d = net(torch.randn(8, 4))
    loss = (y - 1).square().mean() + d.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TAPPED = """
import torch
from torch import nn
torch.manual_seed(0)
class Tap:
    def __init__(self, model):
        self.kept = {}
        model[0].register_forward_hook(self._keeps("first"))
    def _keeps(self, key):
        def hook(module, args, output):
            self.kept[key] = output
        return hook
class Distiller:
    def __init__(self, student, teacher):
        self.student, self.teacher = student, teacher.requires_grad_(False)
        self.ours, self.theirs = Tap(student), Tap(teacher)
    def loss(self, x):
        task = self.student(x).square().mean()
        with torch.no_grad():
            self.teacher(x)
            self.student(x)
        near = (self.ours.kept["first"] - self.theirs.kept["first"]).square().mean()
        return task + 0.5 * near
def net():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
student = net()
both = Distiller(student, net())
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(3):
    loss = both.loss(torch.randn(8, 4))
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
CODES = """
import torch
from torch import nn
torch.manual_seed(0)
encoder, book, decoder = nn.Linear(4, 2), nn.Embedding(4, 2), nn.Linear(2, 4)
opt = torch.optim.SGD([*encoder.parameters(), *book.parameters(), *decoder.parameters()], lr=0.1)
def encode(x):
    return {"z": encoder(x), "code": book(x.argmax(1))}
for step in range(3):
    x = torch.randn(8, 4)
    made = encode(x)
    scale = made["z"].detach().norm()
    loss = ((decoder(made["z"]) - x) / scale).square().mean()
    loss = loss + (made["z"] - made["code"].detach()).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
UNASKED = """
import torch
from torch import nn
from torch.func import functional_call
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(4, 3), nn.Linear(3, 1), nn.Linear(3, 2)
    def forward(self, x, other=False):
        return self.other(self.body(x)) if other else self.head(self.body(x))
net, meta = Net(), nn.Linear(1, 1)
for step in range(3):
    parameters = dict(net.named_parameters())
    cost = functional_call(net, parameters, (torch.randn(8, 4),)).square()
    loss = (meta(cost.detach()).sigmoid() * cost).mean()
    gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
"""
JUDGES = """
import torch
from torch import nn
torch.manual_seed(0)
maker, judge = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
opt, judging = torch.optim.SGD(maker.parameters(), lr=0.1), torch.optim.SGD(judge.parameters(), lr=0.1)
for step in range(6):
    made, real = maker(torch.randn(8, 2)), torch.randn(8, 4)
    judge.requires_grad_(True)
    loss = (judge(real) - 1).square().mean() + judge(made.detach()).square().mean()
    judging.zero_grad()
    loss.backward()
    judging.step()
    judge.requires_grad_(False)
    loss = (judge(made) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 2 == 0:
        pass
        real.requires_grad_(True)
        (slope,) = torch.autograd.grad(judge(real).sum(), real, create_graph=True)
        judging.zero_grad()
        slope.square().sum().backward()
        judging.step()
"""
ADDER = """
import torch
from torch import nn
torch.manual_seed(0)
class Adder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return -(x.unsqueeze(1) - w.unsqueeze(0)).abs().sum(-1)
    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        delta = x.unsqueeze(1) - w.unsqueeze(0)
        gradient = gradient.unsqueeze(-1)
        for_w = (delta * gradient).sum(0)
        return (-delta.clamp(-1, 1) * gradient).sum(1), for_w / for_w.norm()
net = nn.Linear(4, 3)
w = nn.Parameter(torch.randn(2, 3))
opt = torch.optim.SGD([*net.parameters(), w], lr=0.1)
for step in range(3):
    loss = Adder.apply(net(torch.randn(8, 4)), w).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
STACK = """
import torch
from torch import nn
torch.manual_seed(0)
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.move = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, h, place):
        h = self.near(h * place).tanh()
        return h, place + self.move(h)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(3)), nn.Linear(4, 1)
    def forward(self, x):
        h, place = x, x
        for layer in self.layers:
            h, place = layer(h, place)
        return self.head(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(8, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FAULTS = {
    "a sample between layers": Fault(
        "no-slope",
        "torch.normal",
        "mean + std * torch.randn_like(mean)",
        "torch.normal(mean, std)",
        "mean + std * torch.randn_like(mean)",
        BOTTLENECK,
    ),
    "a mask that is drawn": Fault(
        "no-slope",
        "torch.bernoulli",
        "y = x + (torch.bernoulli(x) - x).detach()",
        "torch.bernoulli(p)",
        "p + (torch.bernoulli(p) - p).detach()",
        GATED,
    ),
    "weights after the mean": Fault(
        "broadcast",
        "criterion(scores",
        "Give that loss reduction='none'",
        "nn.CrossEntropyLoss()",
        "nn.CrossEntropyLoss(reduction='none')",
        WEIGHED,
    ),
    "backward() of a module": Fault(
        "no-effect",
        "def backward(self",
        "make it a static method of a torch.autograd.Function",
        "        return x\n    def backward(self, gradient):\n        return -gradient\n",
        "        return Reverse.apply(x)\n",
        REVERSED,
    ),
    "what a hook keeps": Fault(
        "constant-term",
        "            self.student(x)",
        "move the line out of torch.no_grad()",
        "            self.student(x)",
        "        self.student(x)",
        TAPPED,
    ),
    "a step of what is frozen": Fault(
        "idle-optimizer",
        "        judging.step()",
        "Call requires_grad_(True) of what it holds",
        "        pass",
        "        judge.requires_grad_(True)",
        JUDGES,
    ),
    "an item of a dict": Fault(
        "unused-parameter", 'made["code"].detach()', "remove .detach()", 'made["code"].detach()', 'made["code"]', CODES
    ),
}
RIGHT = {
    "all optimizers step, whatever is frozen": JUDGES.replace(
        "    opt.step()", "    judging.zero_grad(); opt.step(); judging.step()"
    ).partition("    if step % 2")[0],
    "an action that is judged by its probability": POLICY,
    "a layer of its own backward()": REVERSED.replace(
        "return -gradient\nclass Adv", "gradient.sum().backward()\nclass Adv"
    ),
    "a gradient that is chosen": ADDER,
    "what only a next layer would use": STACK,
    "gradients by hand": f"{REVERSED}print(net.reversal.backward(torch.ones(3)))\n",
    "one weight of a mean": WEIGHED.replace("torch.rand(8)", "torch.rand(1)"),
    "a mask that its probability judges": GATED.replace(
        "+ 0.1 * p.mean()", "- (0.1 * (mask * p.log() + (1 - mask) * (1 - p).log())).mean()"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", every_other(RIGHT))
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


def test_what_did_not_run_is_behind_no_cut(tmp_path: Path) -> None:
    (found,) = alarms(UNASKED, tmp_path)
    assert found["id"] == "raised" and "net.other.weight" in found["summary"]
    assert "detach" not in found["fix"] and "allow_unused" in found["fix"]
