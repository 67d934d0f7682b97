"""What torch's losses are given: shapes that only broadcast, and targets and weights with a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

ACTOR = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
body, policy, value = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)
optimizer = torch.optim.Adam([*body.parameters(), *policy.parameters(), *value.parameters()])
for step in range(4):
    state, reward = torch.randn(16, 4), torch.randn(16)
    hidden = torch.tanh(body(state))
    chances = torch.distributions.Categorical(logits=policy(hidden))
    action = chances.sample()
    advantage = reward - value(hidden).squeeze(1)
    loss = -(chances.log_prob(action) * advantage).mean() + F.mse_loss(value(hidden).squeeze(1), reward)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
POLICY = """
import torch
from torch import nn
torch.manual_seed(0)
body, mean, width = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
optimizer = torch.optim.Adam([*body.parameters(), *mean.parameters(), *width.parameters()])
for step in range(4):
    hidden = torch.tanh(body(torch.randn(16, 4)))
    policy = torch.distributions.Normal(mean(hidden), width(hidden).exp())
    actions, advantage = policy.sample(), torch.randn(16, 2)
    old_log_probs = policy.log_prob(actions)
    ratio = (policy.log_prob(actions) - old_log_probs).exp()
    loss = -(ratio * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TEACHER = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
optimizer = torch.optim.Adam([*teacher.parameters(), *student.parameters()])
for step in range(4):
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    scores = teacher(x)
    teacher_probs = scores.softmax(1)
    apart = F.kl_div(F.log_softmax(student(x), 1), teacher_probs, reduction="batchmean")
    loss = F.cross_entropy(scores, y) + apart
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SHAPES = """
import torch
from torch import nn
net, criterion = nn.Linear(4, 1), nn.MSELoss()
optimizer = torch.optim.Adam(net.parameters())
for step in range(4):
    x, y = torch.randn(16, 4), torch.randn(16, 3)
    loss = criterion(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FOLLOWS = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
net, follower = nn.Linear(4, 1), nn.Linear(4, 1)
optimizer = torch.optim.Adam([*net.parameters(), *follower.parameters()])
class Losses:
    def mse_loss(self):
        return F.mse_loss(follower(x), net(x))
for step in range(4):
    x = torch.randn(16, 4)
    before = net(x)
    now = before
    loss = F.smooth_l1_loss(input=now, target=before) + now.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FAULTS = {
    "an advantage with a graph": Fault(
        "loss-input",
        "loss = ",
        "use (advantage).detach()",
        "(action) * advantage)",
        "(action) * (advantage).detach())",
        ACTOR,
    ),
    "an advantage with a graph, beside other products": Fault(
        "loss-input",
        "loss = ",
        "use (advantage).detach()",
        "(action) * advantage)",
        "(action) * (advantage).detach())",
        ACTOR.replace(".squeeze(1), reward)", ".squeeze(1), reward) * 0.5 + (body.weight * body.weight).sum() * 1e-3"),
    ),
    "an advantage with a graph, and a density that multiplies": Fault(
        "loss-input",
        "loss = ",
        "use (advantage).detach()",
        "(action) * advantage)",
        "(action) * (advantage).detach())",
        ACTOR.replace("Categorical(logits=policy(hidden))", "Normal(policy(hidden).mean(1), policy(hidden).std(1))"),
    ),
    "an earlier policy with a graph, in a density": Fault(
        "loss-input",
        "ratio = ",
        ".detach() where it is computed",
        "old_log_probs = policy.log_prob(actions)",
        "old_log_probs = policy.log_prob(actions).detach()",
        POLICY,
    ),
    "the probabilities of a teacher with a graph": Fault(
        "loss-input",
        "apart = ",
        "use (teacher_probs).detach()",
        ", teacher_probs, ",
        ", (teacher_probs).detach(), ",
        TEACHER,
    ),
    "the same by keywords": Fault(
        "loss-input",
        "apart = ",
        "use (teacher_probs).detach()",
        "target=teacher_probs",
        "target=(teacher_probs).detach()",
        TEACHER.replace(
            "F.log_softmax(student(x), 1), ", "reduction='batchmean', input=F.log_softmax(student(x), 1), "
        ).replace('teacher_probs, reduction="batchmean"', "target=teacher_probs"),
    ),
    "a tensor that is compared with itself, by keywords": Fault(
        "loss-input",
        "loss = ",
        ".detach().clone() where it is noted",
        "now = before",
        "now = before; before = before.detach().clone()",
        FOLLOWS,
    ),
    "one output for three targets": Fault(
        "loss-input",
        "loss = ",
        "Give both one shape",
        "y = torch.randn(16, 4), torch.randn(16, 3)",
        "y = torch.randn(16, 4), torch.randn(16, 1)",
        SHAPES,
    ),
    "a loss beside another one": Fault(
        "loss-input",
        "loss = ",
        "Give both one shape",
        "y = torch.randn(16, 4), torch.randn(16, 3)",
        "y = torch.randn(16, 4), torch.randn(16, 1)",
        SHAPES.replace("criterion(net(x), y)", "criterion(net(x), y) + nn.functional.l1_loss(net(x), y[:, :1])"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_what_a_loss_is_given(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["torch.ones(1)", "torch.tensor(1.0)", "torch.randn(1, 16, 1)"])
def test_what_broadcasts_on_purpose_is_left_alone(target: str, tmp_path: Path) -> None:
    assert not alarms(SHAPES.replace("criterion(net(x), y)", f"criterion(net(x), {target})"), tmp_path)


@pytest.mark.parametrize(
    "loss",
    [
        "F.smooth_l1_loss(**dict(input=follower(x), target=now))",
        "F.mse_loss(*(follower(x), now))",
        "F.huber_loss(follower(x), *(now,))",
        "Losses().mse_loss()",
        "F.mse_loss(input=follower(x), target=now)",
    ],
)
def test_what_the_code_hides_is_left_alone(loss: str, tmp_path: Path) -> None:
    assert not alarms(FOLLOWS.replace("F.smooth_l1_loss(input=now, target=before)", loss), tmp_path)


VALUE = "chances.log_prob(action) * advantage).mean() + F.mse_loss(value(hidden).squeeze(1), reward)"


@pytest.mark.parametrize(
    "loss",
    [
        "chances.log_prob(action) * reward).mean() + (value(hidden).squeeze(1) * value(hidden).squeeze(1)).mean()",
        "chances.log_prob(action) * reward).mean() + F.cosine_similarity(value(hidden), hidden).mean()",
        "chances.log_prob(action) * reward).mean() + torch.mul(value(hidden), value(hidden)).mean()",
    ],
)
def test_another_product_of_the_line_is_left_alone(loss: str, tmp_path: Path) -> None:
    assert VALUE in ACTOR
    assert not alarms(ACTOR.replace(VALUE, loss).replace("reward", "returns"), tmp_path)
