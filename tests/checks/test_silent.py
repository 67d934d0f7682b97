"""Faults that nothing complains of: each is named at its line, and what the advice says leaves nothing to say."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.checks.advice import alarms
from tests.checks.test_scripts import check, written
from tests.rows import every_other


class Silent(NamedTuple):
    """A script, the check that speaks, a piece of its line, and what mends the script."""

    id: str
    line: str
    text: str
    mend: tuple[str, str]


HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
"""
LOOP = """
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(6):
    x = torch.randn(8, 4)
    loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        {init}
    def forward(self, x):
        h = self.body(x)
        {forward}
        return self.head(h)
net = Net()
{after}
"""


def net(forward: str = "pass", init: str = "pass", after: str = "", loop: str = LOOP) -> str:
    return NET.format(forward=forward, init=init, after=after) + loop


CUSTOM = """
class Hard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sign(x)
    @staticmethod
    def backward(ctx, g):
        return g
"""
CASES = {
    "hooks of a module whose forward is called": Silent(
        "no-effect",
        "self.body.forward(x)",
        net(after="net.body.register_forward_hook(print)").replace("self.body(x)", "self.body.forward(x)"),
        ("self.body.forward(x)", "self.body(x)"),
    ),
    "hooks of a model whose forward is called": Silent(
        "no-effect",
        "net.forward(x)",
        net(after="net.register_forward_pre_hook(print)", loop=LOOP.replace("net(x)", "net.forward(x)")),
        ("net.forward(x)", "net(x)"),
    ),
    "forward of a custom Function": Silent(
        "no-effect",
        "Hard.forward(None, h)",
        CUSTOM + net("h = Hard.forward(None, h)"),
        ("Hard.forward(None, h)", "Hard.apply(h)"),
    ),
    "a target that is detached in vain": Silent(
        "no-effect",
        "goal.detach()",
        net(
            loop=LOOP.replace(
                "    opt.zero",
                "    goal = net(x + 1)\n    goal.detach()\n    loss = loss + (net(x) - goal).square().mean()\n    opt.zero",
            )
        ),
        ("    goal.detach()", "    goal = goal.detach()"),
    ),
    "weights that are clamped in vain": Silent(
        "no-effect",
        "w.clamp(-1, 1)",
        net(loop=LOOP + "    with torch.no_grad():\n        w = net.body.weight\n        w.clamp(-1, 1)\n"),
        ("w.clamp(-1, 1)", "w.clamp_(-1, 1)"),
    ),
    "a step without parentheses": Silent(
        "no-effect", "opt.step", net(loop=LOOP.replace("opt.step()", "opt.step")), ("opt.step", "opt.step()")
    ),
    "a transposed weight that is made once": Silent(
        "outdated-result",
        "self.turned =",
        net("h = h @ self.turned", "self.w = nn.Parameter(torch.eye(8)); self.turned = self.w.t().contiguous()"),
        ("h @ self.turned", "h @ self.w.t()"),
    ),
    "dropout by a function that eval() does not reach": Silent(
        "wrong-mode",
        "F.dropout(h, 0.5)",
        net(
            "h = F.dropout(h, 0.5)",
            loop=LOOP + "    net.eval()\n    with torch.no_grad():\n        net(x)\n    net.train()\n",
        ),
        ("F.dropout(h, 0.5)", "F.dropout(h, 0.5, training=self.training)"),
    ),
    "a term on a detached copy": Silent(
        "constant-term",
        "h2 = h.detach()",
        net(
            "h2 = h.detach().requires_grad_(); h = h + self.body(x); self.aux = self.head(h2).square().mean()",
            loop=LOOP.replace("    opt.zero", "    loss = loss + net.aux\n    opt.zero"),
        ),
        ("h.detach().requires_grad_()", "h"),
    ),
    "layers that are thawed after the optimizer was made": Silent(
        "never-updated",
        "opt = ",
        net(
            after="net.body.requires_grad_(False)",
            loop=LOOP.replace("net.parameters()", "net.head.parameters()")
            + "    if step == 2:\n        net.body.requires_grad_(True)\n",
        ),
        ("requires_grad_(True)", "requires_grad_(True); opt.add_param_group({'params': net.body.parameters()})"),
    ),
    "leaves in a dict that are computed from": Silent(
        "freed-graph",
        "p = {",
        "p = {'w': torch.randn(4, 2, requires_grad=True) * 0.1}\n"
        + LOOP.replace("net(x)", "x @ p['w']").replace("net.parameters()", "[torch.ones(1)]"),
        ("torch.randn(4, 2, requires_grad=True) * 0.1", "(torch.randn(4, 2) * 0.1).requires_grad_()"),
    ),
}
RIGHT = {
    "sets, lists, loggers and queues": net(
        "self.seen.add(1); self.items.append(2); self.items.sort(); self.log('a', 1)",
        "self.seen, self.items, self.log = set(), [], lambda *a: None",
    ),
    "a copy whose gradient is read": net(
        "h = h.detach().requires_grad_(); self.h = h; self.g = h.grad; h = self.body(x) + h"
    ),
    "dropout that says so": net(
        "h = F.dropout(h, 0.5, training=True)",
        loop=LOOP + "    net.eval()\n    with torch.no_grad(): net(x)\n    net.train()\n",
    ),
    "a result of what nobody trains": net(
        "h = h @ self.turned",
        "self.w = torch.eye(8, requires_grad=True); self.turned = self.w.t().contiguous().detach()",
    ),
    "a copy of what another optimizer trains": "maker = nn.Linear(4, 4)\nopts = [torch.optim.SGD(maker.parameters(), 0.1)]\n"
    + net(loop=LOOP.replace("x = torch.randn(8, 4)", "x = maker(torch.randn(8, 4)).detach().requires_grad_()")),
    "a model without hooks whose forward is called": net(loop=LOOP.replace("net(x)", "net.forward(x)")),
    "hooks of a model whose forward is called, too": net(
        after="net.register_forward_pre_hook(print)",
        loop=LOOP.replace("    opt.z", "    loss = loss + net.forward(x).square().mean()\n    opt.z"),
    ),
    "a base class's forward": net("h = nn.Linear.forward(self.body, x)"),
}


@pytest.mark.parametrize("name", every_other(CASES))
def test_it_is_named_and_mended(name: str, tmp_path: Path) -> None:
    case, script = CASES[name], HEAD + CASES[name].text
    found, _ = check(written(tmp_path, script))
    first = next(one for one in found if one["severity"] != "note")
    assert first["id"] == case.id, found
    assert case.line in script.split("\n")[first["line"] - 1], first
    assert script.count(case.mend[0]) == 1
    mended = script.replace(*case.mend)
    if case.id != "freed-graph":  # there, the optimizer is made for something else
        assert not alarms(mended, tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_meant_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(HEAD + RIGHT[name], tmp_path)
