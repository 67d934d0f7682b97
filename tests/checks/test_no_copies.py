"""Averages and copies that hold the parameters themselves, iterators that are used up, noise that is drawn twice, and others of
an unseen set: each is found at its line, the advice heals, and what looks alike is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
def build():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
net, teacher = build(), build()
"""
TRAIN = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(4):
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    loss = (net(x) - y).square().mean()PENALTY
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    AFTER
"""


def program(before: str, after: str = "pass", penalty: str = "") -> str:
    return HEAD + before + TRAIN.replace("AFTER", after).replace("PENALTY", penalty)


TEACHER = """
for p, q in zip(teacher.parameters(), net.parameters()):
    p.data = q.data
    p.requires_grad_(False)
"""
MEAN = "for p, q in zip(teacher.parameters(), net.parameters()):\n        p.data.mul_(0.9).add_(q.data, alpha=0.1)"
EMA = """
class EMA:
    def __init__(self, model):
        KEEPS
    def update(self, model):
        for n, p in model.named_parameters():
            UPDATES
ema = EMA(net)
"""
IN_PLACE = "self.shadow[n].mul_(0.9).add_(p.data, alpha=0.1)"
REGISTER = "self.shadow = {}\n        for n, p in model.named_parameters():\n            self.shadow[n] = p"


AVERAGES = """
class EMA:
    def __init__(self, model):
        self.shadow = list(model.parameters())
    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            s.mul_(0.9).add_(p, alpha=0.1)
ema = EMA(net)
"""


def ema(keeps: str, updates: str = IN_PLACE) -> str:
    return program(EMA.replace("KEEPS", keeps).replace("UPDATES", updates), "ema.update(net)")


def kept(attribute: str, keeps: str) -> Fault:
    copied = keeps.replace(attribute, f"{attribute}.clone()")
    return Fault("no-effect", keeps.rpartition("\n")[2], f"use {attribute}.clone()", keeps, copied, ema(keeps))


TIED = """
class Tied(nn.Module):
    def __init__(self, size=5, tie=True):
        super().__init__()
        self.emb, self.out = nn.Embedding(size, 4), nn.Linear(4, size, bias=False)
        if tie:
            self.out.weight = self.emb.weight
        self.reset()
    def reset(self):
        self.out.weight = nn.Parameter(0.1 * torch.randn(5, 4))
    def forward(self, x):
        return self.out(self.emb(x))
net = nn.Sequential(MADE, nn.Linear(5, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(4):
    loss = net(torch.arange(5)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DIFFUSION = """
def add_noise(x, t, noise=None):
    if noise is None:
        noise = torch.randn_like(x)
    return (1 - t) * x + t * noise
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(4):
    x, t = torch.ones(8, 4), torch.rand(8, 1)
    noise = torch.randn_like(x)
    seen = CALL
    loss = F.mse_loss(net(seen), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
GIVEN = DIFFUSION.replace(
    "    noise = torch.randn_like(x)\n    seen = CALL\n    loss = F.mse_loss(net(seen), noise)",
    "    loss = losses(x, t)",
).replace(
    "optimizer =",
    "def losses(x, t, noise=None):\n    if noise is None:\n        noise = torch.randn_like(x)\n"
    "    seen = add_noise(x, t)\n    return F.mse_loss(net(seen), noise)\noptimizer =",
)
QUANTIZED = """
class Quantized(nn.Linear):
    def forward(self, x):
        scale = self.weight.detach().abs().max() / 7
        q = torch.clamp(torch.round(self.weight / scale), -8, 7) * scale
        return F.linear(x, WEIGHT, self.bias)
net = nn.Sequential(Quantized(4, 16), nn.Tanh(), nn.Linear(16, 4))
"""
SCALED = """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.scale = build(), nn.Parameter(torch.tensor(1.5))
    def forward(self, x):
        return self.body(x) * SCALE
net = Scaled()
"""
CLIPPED = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(4):
    loss = net(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    FIRST
    loss.backward()
    SECOND
    optimizer.step()
    norm = sum(p.grad.square().sum() for p in net.parameters()).sqrt().item()
    print("loss", loss.item(), f"norm {norm:.3f}")
"""
CLIP = "nn.utils.clip_grad_norm_(net.parameters(), 0.5)"
NOT_CLIPPED = CLIPPED.replace("FIRST", CLIP).replace("SECOND", "pass")

HOOKED = """
def mask(grad):
    masked = grad.clone()
    masked[:2] = 0
    RETURNED
net[0].bias.register_hook(mask)
"""
MOMENTUM = """
velocity = [torch.zeros_like(p) for p in net.parameters()]
for step in range(4):
    loss = net(torch.randn(8, 4)).square().mean()
    loss.backward()
    with torch.no_grad():
        for p, v in zip(net.parameters(), velocity):
            GOES_ON
            p -= 0.05 * v
            p.grad.zero_()
"""


FAULTS = {
    "a hook that returns nothing": Fault(
        "no-effect",
        "def mask(grad)",
        "return masked",
        "    pass\nnet[0]",
        "    return masked\nnet[0]",
        program(HOOKED.replace("RETURNED", "pass")),
    ),
    "a module that is to be trained again": Fault(
        "no-effect",
        "first.requires_grad = True",
        "first.requires_grad_(True)",
        "first.requires_grad = True",
        "first.requires_grad_(True)",
        program("first = net[0].requires_grad_(False)", "first.requires_grad = True"),
    ),
    "a velocity that is lost": Fault(
        "no-effect",
        "v = 0.9 * v + p.grad",
        "v.data.copy_(0.9 * v + p.grad)",
        "v = 0.9 * v + p.grad",
        "v.data.copy_(0.9 * v + p.grad)",
        HEAD + MOMENTUM.replace("GOES_ON", "v = 0.9 * v + p.grad"),
    ),
    "a weight that cancels what it weighs": Fault(
        "no-slope",
        "loss = (net(x) - y)",
        "(x / y).detach() * y",
        "small / (big + 1e-8)",
        "(small / (big + 1e-8)).detach()",
        program(
            "second = build()\nevery = [*net.parameters(), *second.parameters()]",
            penalty="; small, big = loss, second(x).square().mean(); loss = small + small / (big + 1e-8) * big",
        ).replace("SGD(net.parameters()", "SGD(every"),
    ),
    "errors that are clamped": Fault(
        "no-slope",
        "loss = (net(x) - y).clamp",
        "smooth_l1_loss",
        "(net(x) - y).clamp(-1, 1).square().mean()",
        "F.smooth_l1_loss(net(x), y)",
        program("").replace("(net(x) - y).square()", "(net(x) - y).clamp(-1, 1).square()"),
    ),
    "a teacher that is the student": Fault(
        "no-effect",
        "p.data = q.data",
        "p.data.copy_(q.data)",
        "p.data = q.data",
        "p.data.copy_(q.data)",
        program(TEACHER, MEAN),
    ),
    "an average in a dict": kept(".data", "self.shadow = {n: p.data for n, p in model.named_parameters()}"),
    "one that is filled in a loop": kept(".detach()", f"{REGISTER}.detach()"),
    "the parameters, in a list": Fault(
        "no-effect",
        "self.shadow = list(",
        "keep copies: [p.detach().clone() for p in ...]",
        "list(model.parameters())",
        "[p.detach().clone() for p in model.parameters()]",
        program(AVERAGES, "ema.update(net)"),
    ),
    "a penalty on an iterator that the optimizer has used up": Fault(
        "no-effect",
        "weights = net.parameters()",
        "weights = list(net.parameters())",
        "weights = net.parameters()",
        "weights = list(net.parameters())",
        program("weights = net.parameters()", penalty=" + 0.1 * sum(w.abs().sum() for w in weights)").replace(
            "SGD(net.parameters()", "SGD(weights"
        ),
    )._replace(at="sum(w.abs()"),
    "one that a filter has gone through": Fault(
        "no-effect",
        "for w in weights: w.data",
        "weights = list(filter(lambda w: w.ndim > 1, net.parameters()))",
        "weights = filter(lambda w: w.ndim > 1, net.parameters())",
        "weights = list(filter(lambda w: w.ndim > 1, net.parameters()))",
        program(
            "weights = filter(lambda w: w.ndim > 1, net.parameters())\nprint(len([*weights]))",
            "for w in weights: w.data.clamp_(-1, 1)",
        ),
    ),
    "weights that the default ties": Fault(
        "no-effect",
        "self.out.weight = self.emb",
        "tie them last",
        "        self.reset()\n",
        "        self.reset()\n        self.out.weight = self.emb.weight\n",
        HEAD + TIED.replace("MADE", "Tied(5)"),
    ),
    "noise that is drawn twice": Fault(
        "loss-input",
        "seen = add_noise(x, t)",
        "add_noise(x, t, noise=noise)",
        "add_noise(x, t)\n",
        "add_noise(x, t, noise=noise)\n",
        HEAD + DIFFUSION.replace("CALL", "add_noise(x, t)"),
    ),
    "the same, where noise may be given": Fault(
        "loss-input",
        "seen = add_noise(x, t)",
        "add_noise(x, t, noise=noise)",
        "add_noise(x, t)\n",
        "add_noise(x, t, noise=noise)\n",
        HEAD + GIVEN,
    ),
    "rounded weights without detach()": Fault(
        "no-slope",
        "F.linear(x, self.weight + (q",
        "x + (y - x).detach()",
        "(q - self.weight)",
        "(q - self.weight).detach()",
        program(QUANTIZED.replace("WEIGHT", "self.weight + (q - self.weight)")),
    ),
    "a scale as a number, which a clamp leaves as it is": Fault(
        "unused-parameter",
        "self.scale.exp().item()",
        "compute the loss from the tensors themselves",
        ".exp().item()",
        ".exp()",
        program(SCALED.replace("SCALE", "self.scale.exp().item()"), "net.scale.data.clamp_(0, 4)"),
    ),
    "clipped too early, where the norm is printed": Fault(
        "no-clipping",
        CLIP,
        "between backward() and optimizer.step()",
        "zero_grad()\n    " + CLIP + "\n    loss.backward()\n    pass",
        "zero_grad()\n    loss.backward()\n    " + CLIP,
        HEAD + NOT_CLIPPED,
    ),
}
RIGHT = {
    "a hook that only looks": program("net[0].bias.register_hook(lambda grad: print(grad.clone().mul_(2).norm()))"),
    "a hook that keeps what it makes": program(
        "kept = []\ndef note(grad):\n    mean = grad.clone()\n    mean.mul_(2)\n    kept.append(mean)\n"
        "net[0].bias.register_hook(note)"
    ),
    "a quotient that saturates": program(
        "", penalty="; r = net(x).square(); loss = loss + (1 - 1 / (r + 1.0) * r).mean()"
    ),
    "a hook that returns what it makes": program(HOOKED.replace("RETURNED", "return masked")),
    "a hook that changes the gradient itself": program(
        "def halve(grad):\n    grad *= 0.5\nnet[0].bias.register_hook(halve)"
    ),
    "a velocity in place": HEAD + MOMENTUM.replace("GOES_ON", "v.mul_(0.9).add_(p.grad)"),
    "a velocity that is stored": HEAD
    + MOMENTUM.replace("GOES_ON", "v = 0.9 * v + p.grad; held = velocity.index\n            velocity[0] = v"),
    "data that a loop changes": program(
        "", "for p, d in zip(net.parameters(), [x, y]):\n        d = 2 * d + 1; print(d.mean())"
    ),
    "an actor that shares its numbers on purpose": program(TEACHER, "print(teacher(x).mean())"),
    "a state that is loaded at once": program(
        "def look(state):\n    net.load_state_dict(state)", "look(net.state_dict())"
    ),
    "a ratio of two losses, as a number": program(
        "", penalty="; big = (3 * net(x)).square().mean(); loss = loss + (loss / big).detach() * big"
    ),
    "a hinge that is squared": program(
        "",
        penalty="; loss = loss + (1 - net(x)).clamp(min=0).square().mean() + torch.clamp(net(x) - y, 0).square().mean()",
    ),
    "values that are clipped around old ones": program(
        "", penalty="; v = y + (net(x) - y).clamp(-1, 1); loss = torch.max(loss, (v - y - 1).square().mean())"
    ),
    "a teacher that is a copy": program(TEACHER.replace("p.data = q.data", "p.data = q.data.clone()"), MEAN),
    "an average that is made anew": ema(
        "self.shadow = {n: p.data for n, p in model.named_parameters()}",
        "self.shadow[n] = 0.9 * self.shadow[n] + 0.1 * p.data",
    ),
    "weights that are moved and moved back": program(
        "held = {n: p.data for n, p in net.named_parameters()}",
        "for n in held: held[n].add_(0.01)\n    print(net(x).mean())\n    for n in held: held[n].sub_(0.01)",
    ),
    "a state that is saved, and one that is loaded at once": program(
        "def look(state):\n    net.load_state_dict(state)",
        "look(net.state_dict()); torch.save({'net': net.state_dict()}, __import__('io').BytesIO())",
    ),
    "a list of parameters that are updated by hand": program(
        "held = list(net.parameters())", "for p in held:\n        p.data.add_(p.grad, alpha=-0.001)"
    ),
    "a container of parameters that are clamped": program(
        "held = {n: p.data for n, p in net.named_parameters()}", "print(len(held))"
    ),
    "an iterator for the optimizer alone": program("weights = net.parameters()").replace(
        "SGD(net.parameters()", "SGD(weights"
    ),
    "an iterator that is made in each turn": program(
        "", "weights = net.parameters()\n    for w in weights: w.data.clamp_(-1, 1)"
    ),
    "weights that a call does not tie": HEAD + TIED.replace("MADE", "Tied(5, False)"),
    "the same, by its name": HEAD + TIED.replace("MADE", "Tied(tie=False)"),
    "noise that is handed over": HEAD + DIFFUSION.replace("CALL", "add_noise(x, t, noise)"),
    "an augmentation with noise of its own": HEAD + DIFFUSION.replace("CALL", "t * noise + add_noise(x, t)"),
    "gradients that a number of theirs changes": HEAD
    + NOT_CLIPPED.replace('print("loss"', "net[0].bias.data *= norm; print(1"),
    "a scale that is set by hand": program(SCALED.replace("SCALE", "self.scale.item()"), "net.scale.data.mul_(0.9)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", every_other(RIGHT))
def test_what_looks_alike_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
