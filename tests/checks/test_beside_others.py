"""Faults that stand beside something that trains all the same: the parameters that are lost get, or need, no gradient elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

INVERSE = """
import torch
from torch import nn
torch.manual_seed(0)
class Inverse:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        self.speed = torch.tensor([0.05], requires_grad=True)
        self.points = torch.rand(16, 1, requires_grad=True)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=0.01)
    def residual(self):
        u = self.net(self.points)
        (slope,) = torch.autograd.grad(u.sum(), self.points, create_graph=True)
        return slope - self.speed * u
    def train(self):
        for step in range(12):
            self.opt.zero_grad()
            self.residual().square().mean().backward()
            self.opt.step()
            with torch.no_grad():
                self.points.grad = None
Inverse().train()
"""
PENALTY = """
import torch
from torch import nn
from torch.autograd import grad as slope_of
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(critic.parameters(), lr=0.01)
for step in range(4):
    real, fake = torch.randn(8, 2), torch.randn(8, 2)
    between = (0.5 * real + 0.5 * fake).requires_grad_(True)
    slope = slope_of(outputs=critic(between).sum(), inputs=between)[0]
    penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
CODES = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
encoder, decoder, codes = nn.Linear(6, 3), nn.Linear(3, 6), nn.Embedding(5, 3)
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *codes.parameters()], lr=0.01)
for step in range(4):
    x = torch.randn(8, 6)
    z = encoder(x)
    near = codes(torch.cdist(z, codes.weight).argmin(1))
    beside = F.mse_loss(near, z.detach()) + 0.25 * F.mse_loss(near.detach(), z)
    near = z + (near - z)
    loss = F.mse_loss(decoder(near), x) + beside
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TIED = """
import torch
from dataclasses import dataclass
from torch import nn
torch.manual_seed(0)
@dataclass
class Config:
    tie: bool = True
class Reader(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        if config.tie:
            self.head.weight = self.words.weight
        self.begin()
    def begin(self):
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = nn.Parameter(torch.randn(9, 4) * 0.02)
    def forward(self, ids):
        return self.head(self.words(ids))
net = Reader(Config())
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(4):
    ids = torch.randint(0, 9, (8, 5))
    opt.zero_grad()
    nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    opt.step()
"""
PLACES = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.places = nn.Parameter(torch.randn(5, 4) * 0.02).unsqueeze(0)
    def forward(self, x):
        return self.lin(x + self.places)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    opt.zero_grad()
    net(torch.randn(8, 5, 4)).square().mean().backward()
    opt.step()
"""
MADE = "self.places = nn.Parameter(torch.randn(5, 4) * 0.02).unsqueeze(0)"
LAST = "self.places = nn.Parameter((torch.randn(5, 4) * 0.02).unsqueeze(0))"
FAULTS = {
    "a Parameter of a product that is given another shape": Fault(
        "nonleaf-parameter", MADE, f"Create the leaf last: {LAST}.", MADE, LAST, PLACES
    ),
    "one with its type": Fault(
        "nonleaf-parameter",
        "nn.Parameter(torch",
        LAST.replace("places =", "places: torch.Tensor ="),
        MADE.replace("places =", "places: torch.Tensor ="),
        LAST.replace("places =", "places: torch.Tensor ="),
        PLACES.replace("places =", "places: torch.Tensor ="),
    ),
    "one that each step makes anew": Fault(
        "nonleaf-parameter",
        "return self.lin(x + nn.Parameter",
        "make parameters as attributes in __init__()",
        "        self.lin = nn.Linear(4, 4)\n        pass\n    def forward(self, x):\n        "
        "return self.lin(x + nn.Parameter(torch.zeros(4)))",
        "        self.lin, self.b = nn.Linear(4, 4), nn.Parameter(torch.zeros(4))\n    def forward(self, x):\n        "
        "return self.lin(x + self.b)",
        PLACES.replace(MADE, "pass").replace("self.places", "nn.Parameter(torch.zeros(4))"),
    ),
    "a leaf of an object that no optimizer holds": Fault(
        "nonleaf-parameter",
        "self.speed = ",
        "Give it to the optimizer",
        "Adam(self.net.parameters(), lr=0.01)",
        "Adam([*self.net.parameters(), self.speed], lr=0.01)",
        INVERSE,
    ),
    "a gradient under another name that is a constant": Fault(
        "constant-term",
        "slope_of(outputs",
        "create_graph=True",
        "inputs=between)",
        "inputs=between, create_graph=True)",
        PENALTY,
    ),
    "a tensor that is added and taken from another one that trains": Fault(
        "no-slope", "near = z +", "Detach the whole difference", "z + (near - z)", "z + (near - z).detach()", CODES
    ),
    "weights that a condition ties": Fault(
        "no-effect",
        "self.head.weight = self.words",
        "tie them last",
        "        self.head.weight = nn.Parameter(torch.randn(9, 4) * 0.02)\n",
        "",
        TIED,
    ),
}
RIGHT = {
    "a leaf of an object that a line updates": INVERSE.replace(
        "self.points.grad = None",
        "self.points.grad = None\n                self.speed -= 0.01 * self.speed.grad\n                self.speed.grad = None",
    ),
    "data of an object that a module is given": INVERSE.replace("self.speed * u", "u").replace(
        "self.net(self.points)", "self.net(2 * torch.cat([self.points, self.speed.expand(16, 1)], 1)[:, :1] - 1)"
    ),
    "a residual connection that is written as a difference": CODES.replace(
        "near = z + (near - z)", "near = z + (torch.tanh(z) * near - z)"
    ),
    "a step towards": CODES.replace("near = z + (near - z)", "near = z + 0.5 * (near - z)"),
    "a condition that is not met": TIED.replace("tie: bool = True", "tie: bool = False"),
    "another arm": TIED.replace("if config.tie:\n", "if config.tie:\n            pass\n        else:\n"),
    "a condition that nobody knows": TIED.replace("if config.tie:", "if torch.rand(()) > 2:"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
