"""Losses that go on with what another one's line computed, and states that each step cuts off: the line is the loss's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

ADVERSARIES = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    def forward(self, x):
        return self.body(x)
maker, judge = nn.Linear(4, 1), Judge()
makers = torch.optim.Adam(maker.parameters(), lr=0.01)
judges = torch.optim.Adam(judge.parameters(), lr=0.01)
for step in range(4):
    fake = maker(torch.randn(16, 4))
    judges.zero_grad()
    (F.softplus(judge(fake.detach())) + F.softplus(-judge(torch.randn(16, 1)))).mean().backward()
    judges.step()
    makers.zero_grad()
    score = judge(fake.detach())
    F.softplus(-score).mean().backward()
    makers.step()
"""
MEMORY = """
import torch
from torch import nn
torch.manual_seed(0)
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(3, 4), nn.Linear(4, 1)
    def forward(self, xs):
        h = xs.new_zeros(xs.shape[1], 4)
        for x in xs:
            h = self.cell(x, h.detach())
        return self.out(h)
net = Reader()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(4):
    loss = net(torch.randn(5, 8, 3)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
HIDDEN = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
net = nn.ModuleDict(dict(attention=nn.MultiheadAttention(8, 2), head=nn.Linear(8, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(5, 2, 8)
    mixed, _ = checkpoint(net['attention'], x, x, x, use_reentrant=True)
    loss = net['head'](mixed).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TWINS = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
encoder, predictor = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 4)
opt = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.05)
def near(p, z):
    return -F.cosine_similarity(p, z, dim=1).mean()
for step in range(4):
    x = torch.randn(16, 6)
    a, b = encoder(x), encoder(x + 0.1 * torch.randn(16, 6))
    loss = 0.5 * near(predictor(a), b) + 0.5 * near(predictor(b), a)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FAULTS = {
    "two views that are pulled together, and nothing apart": Fault(
        "loss-input",
        "F.cosine_similarity",
        ".detach() on the one that is to be the target",
        "cosine_similarity(p, z,",
        "cosine_similarity(p, z.detach(),",
        TWINS,
    ),
    "the same by hand": Fault(
        "loss-input",
        "F.normalize",
        ".detach() on the one that is to be the target",
        "F.normalize(z, dim=1)",
        "F.normalize(z.detach(), dim=1)",
        TWINS.replace("F.cosine_similarity(p, z, dim=1)", "(F.normalize(p, dim=1) * F.normalize(z, dim=1)).sum(1)"),
    ),
    "a sample that is detached for the maker, too": Fault(
        "idle-optimizer",
        "score = ",
        "remove .detach()",
        "score = judge(fake.detach())",
        "score = judge(fake)",
        ADVERSARIES,
    ),
    "a state that is detached in each step": Fault(
        "cut-state", "self.cell(x, h.detach())", "give net.cell the state itself", "h.detach()", "h", MEMORY
    ),
    "attention in a reentrant checkpoint": Fault(
        "unused-parameter", "use_reentrant", "use_reentrant=False", "use_reentrant=True", "use_reentrant=False", HIDDEN
    ),
}
PHASES = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
net = nn.ModuleDict(dict(body=nn.Linear(4, 4), hint=nn.Linear(4, 6), head=nn.Linear(4, 3)))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(12):
    h = net['body'](torch.randn(8, 4)).relu()
    hint = F.mse_loss(net['hint'](h), torch.randn(8, 6))
    scores = F.cross_entropy(net['head'](h), torch.randint(0, 3, (8,)))
    loss = hint if step < 8 else scores
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
RIGHT = {
    "pairs that are to be near, and others that are not": TWINS.replace(
        "+ 0.5 * near(predictor(b), a)", "- near(predictor(b), a.flip(0))"
    ),
    "two views that are pushed apart": TWINS.replace("-F.cosine", "F.cosine"),
    "two views beside a loss with labels": TWINS.replace(
        "    opt.zero_grad()", "    loss = loss + F.cross_entropy(a, torch.randint(0, 4, (16,)))\n    opt.zero_grad()"
    ),
    "two towers of their own": TWINS.replace(
        "def near", "other = nn.Linear(6, 4)\nopt.add_param_group(dict(params=other.parameters()))\ndef near"
    )
    .replace("encoder(x +", "other(x +")
    .replace(" + 0.5 * near(predictor(b), a)", ""),
    "cosines that are to be small": TWINS.replace(
        "cosine_similarity(p, z, dim=1)", "cosine_similarity(p, z, dim=1).square()"
    ),
    "a head that is trained later": PHASES,
    "a head that is trained when nobody watches": PHASES.replace("range(12)", "range(260)").replace("< 8", "< 160"),
    "a state that is detached in front of the loop": MEMORY.replace("h.detach()", "h").replace(
        "        for x", "        h = h.detach()\n        for x"
    ),
    "a state that is detached now and then": MEMORY.replace(
        "            h = self.cell(x, h.detach())", "            h = self.cell(x, h.detach() if h.sum() == 0 else h)"
    ),
    "a cell that is trained in each step": """
import torch
from torch import nn
torch.manual_seed(0)
cell, h = nn.GRUCell(3, 4), torch.zeros(8, 4)
opt = torch.optim.Adam(cell.parameters(), lr=0.01)
for x in torch.randn(12, 8, 3):
    h = cell(x, h.detach())
    loss = (h - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(RIGHT))
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


@pytest.mark.slow
def test_a_head_that_is_never_trained_is_told(tmp_path: Path) -> None:
    (found,) = alarms(PHASES.replace("step < 8", "step >= 0"), tmp_path)
    assert found["id"] == "unused-parameter" and "net.head" in found["where"]


IN_A_HELPER = ADVERSARIES.replace("maker, judge", "def judged(x):\n    return judge(x.detach())\nmaker, judge").replace(
    "score = judge(fake.detach())", "score = judged(fake)"
)


@pytest.mark.slow
@pytest.mark.parametrize("script", [ADVERSARIES, IN_A_HELPER], ids=["beside the loss", "in a helper"])
def test_parts_of_one_call_are_no_calls(script: str, tmp_path: Path) -> None:
    (found,) = alarms(script, tmp_path)
    assert "detaches" in found["why"] and "calls" not in found["why"]


@pytest.mark.slow
def test_one_cause_is_one_finding(tmp_path: Path) -> None:
    assert len(alarms(HIDDEN, tmp_path)) == 1
