"""Faults of which cause and effect stand in two functions: squares of data, attention that drops, generators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

ACTOR = """
import torch
from torch import nn
torch.manual_seed(0)
class Agent:
    def __init__(self):
        self.body, self.policy, self.value = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        every = [*self.body.parameters(), *self.policy.parameters(), *self.value.parameters()]
        self.opt = torch.optim.Adam(every, lr=0.01)
    def update(self, states, actions, returns):
        h = self.body(states).tanh()
        log_prob, value = self.policy(h).log_softmax(1)[range(16), actions], self.value(h)
        critic = (value.squeeze(1) - returns).square().mean()
        advantage = returns - value.detach()
        loss = critic - (advantage * log_prob).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
agent = Agent()
for step in range(4):
    agent.update(torch.randn(16, 4), torch.randint(2, (16,)), torch.randn(16))
"""
ATTENTION = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self, dim, drop=0.2):
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), drop
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop, is_causal=True))
model = nn.Sequential(Attention(8), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    model.train()
    for _ in range(3):
        loss = model(torch.randn(2, 5, 8)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        print(model(torch.randn(2, 5, 8)).mean().item())
"""
STREAM = """
import torch
from torch import nn
torch.manual_seed(0)
backbone, head = nn.Linear(4, 8).requires_grad_(False), nn.Linear(8, 1)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
def features(count):
    for _ in range(count):
        with torch.no_grad():
            made = backbone(torch.randn(3, 4)).relu()
            yield made
def train():
    for made in features(4):
        loss = head(made).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
train()
"""
MEMORY = """
import torch
from torch import nn
torch.manual_seed(0)
class Memory:
    def __init__(self):
        self.states = {key: torch.zeros(1, 4) for key in (1, 2, 3)}
    def read(self, key):
        return self.states[key]
    def write(self, key, value):
        self.states[key] = value
cell, head, memory = nn.GRUCell(3, 4), nn.Linear(4, 1), Memory()
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
for step in range(4):
    for key in (1, 2 + step % 2):
        memory.write(key, cell(torch.randn(1, 3), memory.read(key)))
    loss = head(torch.cat([memory.read(key) for key in (1, 2, 3)])).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
KERNEL = """
import torch
from torch import nn
torch.manual_seed(0)
class Kernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_length = nn.Parameter(torch.zeros(2))
        self.length = self.log_length.exp()
    def forward(self, x):
        scaled = x / self.length
        return (-torch.cdist(scaled, scaled)).exp()
kernel = Kernel()
def train():
    opt = torch.optim.Adam(kernel.parameters(), lr=0.01)
    for step in range(4):
        loss = kernel(torch.randn(6, 2)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
train()
"""
FAULTS = {
    "returns less a column of values": Fault(
        "broadcast",
        "advantage = returns",
        ".squeeze(1) on the one with two dimensions",
        "value.detach()",
        "value.detach().squeeze(1)",
        ACTOR,
    ),
    "where the loss is written": Fault(
        "broadcast",
        "critic - ((returns",
        ".squeeze(1) on the one with two dimensions",
        "(returns - value.detach())",
        "(returns - value.detach().squeeze(1))",
        ACTOR.replace("        advantage = returns - value.detach()\n", "").replace(
            "(advantage * log", "((returns - value.detach()) * log"
        ),
    ),
    "attention that drops in both modes": Fault(
        "wrong-mode",
        "F.scaled_dot",
        "pass dropout_p=self.drop if self.training else 0.0",
        "dropout_p=self.drop",
        "dropout_p=self.drop if self.training else 0.0",
        ATTENTION,
    ),
    "a value out of a block": Fault(
        "no-graph",
        "yield made",
        "end the block before the value is handed out",
        "            yield made",
        "        yield made",
        STREAM,
    ),
    "states that are kept by key": Fault(
        "freed-graph",
        "cell(torch.randn(1, 3)",
        "memory.states[key] = memory.states[key].detach() for each key",
        "    opt.step()",
        "    opt.step()\n    for key in memory.states:\n        memory.states[key] = memory.states[key].detach()",
        MEMORY,
    ),
}
SDPA = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24); self.dropout = 0.1; self.out = nn.Linear(8, 1)
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.training:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y)
net = Attention()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 5, 8); y = x[..., :1]
for step in range(3):
    net.train()
    loss = F.mse_loss(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad():
        print(F.mse_loss(net(x), y).item())
"""
SDPA_TRAIN = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24); self.rate = 0.1; self.p = 0.1; self.out = nn.Linear(8, 1)
    def train(self, mode=True):
        super().train(mode)
        self.p = self.rate if mode else 0.0
        return self
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, dropout_p=self.p))
net = Attention()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 5, 8); y = x[..., :1]
for step in range(3):
    net.train()
    loss = F.mse_loss(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad():
        print(F.mse_loss(net(x), y).item())
"""
ALL_PAIRS = """
import torch
from torch import nn
torch.manual_seed(0)
n = 24
points = torch.linspace(0, 1, n).view(n, 1)
centers = torch.linspace(0, 1, n)
target = torch.sin(6 * torch.linspace(0, 1, n))
alpha = nn.Parameter(torch.zeros(n))
opt = torch.optim.SGD([alpha], lr=0.01)
def train():
    for step in range(3):
        gap = points - centers
        prediction = torch.exp(-gap.pow(2)) @ alpha
        lin = points * centers
        prediction = prediction + lin @ alpha
        loss = nn.functional.mse_loss(prediction, target)
        opt.zero_grad(); loss.backward(); opt.step()
train()
"""
RIGHT = {
    "pairs on purpose": ACTOR.replace("value.detach()", "returns[:, None]"),
    "pairs of a column made for them": ACTOR.replace(
        "advantage = returns - value.detach()",
        "column = returns.unsqueeze(1)\n        advantage = (returns - column).sign()",
    ),
    "a square matrix": ACTOR.replace("returns - value.detach()", "torch.eye(16)"),
    "one shape": ACTOR.replace("value.detach()", "value.detach()[:, 0]"),
    "no dropout": ATTENTION.replace("drop=0.2", "drop=0.0"),
    "dropout by mode": ATTENTION.replace("=self.drop,", "=self.drop * self.training,"),
    "never evaluated": ATTENTION.replace("    model.eval()\n", "").replace(
        "    with torch.no_grad():\n        print(model(torch.randn(2, 5, 8)).mean().item())\n", ""
    ),
    "a generator with a decorator": STREAM.replace("def features", "@torch.no_grad()\ndef features").replace(
        "        with torch.no_grad():\n            made = backbone(torch.randn(3, 4)).relu()\n            yield made",
        "        yield backbone(torch.randn(3, 4)).relu()",
    ),
    "attention that asks for its mode": SDPA,
    "train() that switches attention": SDPA_TRAIN,
    "a kernel of all pairs": ALL_PAIRS,
    "a generator for an evaluation": STREAM.replace(
        "        loss = head(made).square().mean()\n        opt.zero_grad()\n        loss.backward()\n        opt.step()\n",
        "        print(head(made).square().mean().item())\n"
        "    loss = head(torch.randn(3, 8)).square().mean()\n    loss.backward()\n    opt.step()\n",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", every_other(RIGHT))
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


def test_what_was_computed_in_a_constructor_is_moved(tmp_path: Path) -> None:
    found = alarms(KERNEL, tmp_path)
    assert [each["id"] for each in found] == ["freed-graph"]
    assert "move self.length = self.log_length.exp() into what runs each time" in found[0]["fix"]


BESIDE = """
import contextlib
import torch
from torch import nn
net = nn.Linear(4, 1)
@contextlib.contextmanager
def quiet():
    with torch.no_grad():
        yield
def batches():
    with torch.no_grad():
        for _ in range(2):
            yield torch.randn(8, 4)
print(sum(batch.sum() for batch in batches()))
"""


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (
            "@torch.no_grad()\ndef step():\n    net(torch.randn(8, 4)).mean().backward()\nfor _ in range(2):\n    step()",
            "@torch",
        ),
        (
            "for _ in range(2):\n    with torch.no_grad():\n        net(torch.randn(8, 4)).mean().backward()",
            "net(torch",
        ),
        ("with quiet():\n    for _ in range(2):\n        net(torch.randn(8, 4)).mean().backward()", "net(torch"),
    ],
)
def test_a_generator_that_no_running_loop_asks_is_not_blamed(text: str, at: str, tmp_path: Path) -> None:
    found = alarms(f"{BESIDE}{text}\n", tmp_path)
    assert [each["id"] for each in found] == ["no-graph"] and found[0]["code"].strip().startswith(at), found
    assert "handed out" not in found[0]["fix"]


def test_eval_looks_at_a_model_once_and_runs_none_of_its_code(tmp_path: Path) -> None:
    script = """
import torch
from torch import nn
class Forward:
    def __get__(self, instance, owner=None):
        return self if instance is None else lambda x: instance.layer(x)
    def __getattr__(self, name):
        raise RuntimeError(f"asked for {name}")
class Odd(nn.Module):
    forward = Forward()
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def __eq__(self, other):
        raise RuntimeError("compared")
    __hash__ = None
net = Odd()
for step in range(3):
    net.train()
    net(torch.randn(8, 4)).square().mean().backward()
    net.eval()
print("END")
"""
    found = alarms(script, tmp_path)
    assert {each["id"] for each in found} <= {"gradient-not-reset"}, found
