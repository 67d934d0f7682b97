"""Two optimizers that take turns, and batches that are added up: whose gradient a step takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import alarms
from tests.checks.test_scripts import check, written

GAN = """
import torch
from torch import nn
gen, disc, enc = nn.Linear(4, 2), nn.Linear(2, 1), nn.Linear(4, 4)
opt_g, opt_d, opt_e = (torch.optim.SGD(net.parameters(), 0.01) for net in (gen, disc, enc))
def fakes():
    return gen(torch.randn(8, 4))
for it in range(12):
{}
"""
BEGIN = "    opt_g.zero_grad(); opt_d.zero_grad()\n"
DISC = "    (disc(fakes()){} - disc(torch.randn(8, 2))).mean().backward()\n"
GEN = "    (-disc(fakes())).mean().backward()\n"
WRONG = {
    "the generator keeps what the discriminator's loss gave it": (
        BEGIN + DISC.format("") + "    opt_d.step()\n" + GEN + "    opt_g.step()\n",
        "opt_g",
    ),
    "the discriminator keeps what the generator's loss gave it": (
        BEGIN + GEN + "    opt_g.step()\n" + DISC.format("") + "    opt_d.step()\n",
        "opt_d",
    ),
    "the same, with a look at it": (
        BEGIN + GEN + "    opt_g.step(); print(disc.weight.grad.norm())\n" + DISC.format("") + "    opt_d.step()\n",
        "opt_d",
    ),
}
RIGHT = {
    "detached": BEGIN
    + DISC.format("").replace("fakes()", "fakes().detach()")
    + "    opt_d.step()\n"
    + GEN
    + "    opt_g.step()\n",
    "reset before each": "    opt_d.zero_grad()\n"
    + DISC.format("")
    + "    opt_d.step()\n    opt_g.zero_grad()\n"
    + GEN
    + "    opt_g.step()\n",
    "both losses, then both steps": BEGIN + DISC.format("") + GEN + "    opt_d.step()\n    opt_g.step()\n",
    "one loss, then a term, then both steps": BEGIN
    + GEN
    + "    gen.weight.square().sum().backward()\n    opt_d.step()\n    opt_g.step()\n",
    "reset by hand": BEGIN
    + DISC.format("")
    + "    opt_d.step()\n    for p in gen.parameters(): p.grad = None\n"
    + GEN
    + "    opt_g.step()\n",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_step_with_another_losses_gradient(name: str, tmp_path: Path) -> None:
    body, optimizer = WRONG[name]
    found, _ = check(written(tmp_path, GAN.format(body)))
    (alarm,) = [one for one in found if one["severity"] != "note"]
    assert (alarm["id"], alarm["names"]) == ("other-gradient", [optimizer])
    assert f"Call {optimizer}.zero_grad() before" in alarm["fix"]


@pytest.mark.parametrize("name", RIGHT)
def test_turns_that_are_right(name: str, tmp_path: Path) -> None:
    assert not alarms(GAN.format(RIGHT[name]), tmp_path)


ADDED_UP = """
import torch
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.01)
for i in range(16):
    opt.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    if i % 4 == 3:
        opt.step()
"""


def test_batches_that_are_added_up_in_vain(tmp_path: Path) -> None:
    found, _ = check(written(tmp_path, ADDED_UP))
    (alarm,) = found
    assert alarm["id"] == "no-update" and "last of 4 calls alone" in alarm["summary"] and alarm["line"] == 6
    mended = ADDED_UP.replace("    opt.zero_grad()\n", "").replace("opt.step()", "opt.step(); opt.zero_grad()")
    assert not alarms(mended, tmp_path)


def test_a_step_that_is_left_out_now_and_then_is_meant(tmp_path: Path) -> None:
    """As for a batch whose loss is not finite, or that raises."""
    assert not alarms(ADDED_UP.replace("range(16)", "range(30)").replace("i % 4 == 3", "i % 10"), tmp_path)


SHARED = """
import torch
from torch import nn
actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
opt_a, opt_c = torch.optim.SGD(actor.parameters(), 0.01), torch.optim.SGD(critic.parameters(), 0.01)
def losses(s, a):
    value = critic(torch.cat([s, actor(s)], 1))
    taken = critic(torch.cat([s, a], 1))
    margin = (taken - value).clamp(max=0).square().mean()
    return -value.mean(), taken.square().mean() + margin
for i in range(3):
    first, second = losses(torch.randn(8, 3), torch.randn(8, 2))
    opt_a.zero_grad()
    first.backward()
    opt_c.zero_grad()
    second.backward()
    opt_a.step()
    opt_c.step()
"""


def test_the_second_loss_of_a_shared_graph_is_told_to_detach(tmp_path: Path) -> None:
    (alarm, *_), _ = check(written(tmp_path, SHARED))
    assert (alarm["id"], alarm["line"]) == ("freed-graph", 9)
    assert "use value.detach() instead of value" in alarm["fix"]
    assert not alarms(SHARED.replace("taken - value)", "taken - value.detach())"), tmp_path)
