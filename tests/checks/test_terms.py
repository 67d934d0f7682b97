"""Weights, temperatures, noise, judges and actions of a loss: found where they are wrong, and what looks alike is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

_RARE = """
    import torch
    torch.manual_seed(0)
    x = torch.randn(600, 4)
    y = (x[:, 0] > 0.9).{kind}()
    share = y.float().mean()
    net = torch.nn.Linear(4, {outputs})
    loss_of = torch.nn.{loss}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        for xs, ys in zip(x.split(100), y.split(100)):
            loss = loss_of(net(xs){flat}, ys)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
_PAIRS = """
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    left, right = torch.nn.Linear(6, 5), torch.nn.Linear(4, 5)
    optimizer = torch.optim.SGD([*left.parameters(), *right.parameters()], lr=0.1)
    for _ in range(3):
        a, b = F.normalize(left(torch.randn(16, 6)), dim=1), F.normalize(right(torch.randn(16, 4)), dim=1)
        similarity = {similarity}
        loss = F.cross_entropy(similarity, torch.arange(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_DIFFUSION = """
    import torch
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = torch.rand(32, 3)

    def noisy(x, level, noise=None):
        noise = torch.randn_like(x) if noise is None else noise
        return (1 - level) * x + level * noise

    for _ in range(3):
        level, noise = torch.rand(32, 1), torch.randn(32, 3)
        x = {noisy}
        loss = torch.nn.functional.mse_loss(net(torch.cat([x, level], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_GAN = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    painter = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    of_painter, of_critic = torch.optim.Adam(painter.parameters()), torch.optim.Adam(critic.parameters())
    error = nn.BCEWithLogitsLoss()
    yes, no = torch.ones(16, 1), torch.zeros(16, 1)
    for _ in range(4):
        picture = painter(torch.randn(16, 3))
        of_critic.zero_grad()
        (error(critic(torch.randn(16, 2)), yes) + error(critic(picture.detach()), no)).backward()
        of_critic.step()
        of_painter.zero_grad()
        loss = {loss}
        loss.backward()
        of_painter.step()
"""
_POLICY = """
    import torch
    from torch.distributions import Categorical
    torch.manual_seed(0)
    policy = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(policy.parameters())
    for _ in range(3):
        states = torch.randn(32, 4)
        with torch.no_grad():
            before = Categorical(logits=policy(states))
            actions = before.sample()
            old = before.log_prob(actions)
        gain = (actions == 1).float() - 0.5
        for _ in range(2):
            now = Categorical(logits=policy(states))
            {again}
            loss = -({ratio} * gain).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
_RATIO = "torch.exp(now.log_prob(actions) - old)"

_CRITIC = """
import torch
torch.manual_seed(0)
policy, critic = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)
opt = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=0.01)
for step in range(6):
    states = torch.randn(16, 4)
    rule = torch.distributions.Categorical(logits=policy(states))
    actions = rule.sample()
    gain = states[:, 0] * actions - critic(states).squeeze(-1)
    loss = -(rule.log_prob(actions) * gain{detach}).mean() + gain.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
_ALPHA = """
import torch
torch.manual_seed(0)
policy, scale = torch.nn.Linear(4, 2), torch.zeros(1, requires_grad=True)
opt = torch.optim.Adam([*policy.parameters(), scale], lr=0.01)
for step in range(6):
    rule = torch.distributions.Normal(policy(torch.randn(16, 4))[:, 0], 1.0)
    action = rule.rsample()
    loss = (scale.exp() * rule.log_prob(action) + action.square()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
_VALUES = """
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(4):
        state, following, rewards = torch.randn(8, 4), torch.randn(8, 4), torch.randn(8)
        values, later = net(state)[:, 0], net(following)
        {target}
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_MIXED = """
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.Adam(net.parameters())
    points, kinds = torch.randn(24, 4), torch.randint(3, (24,))
    for epoch in range(4):
        shuffled = torch.randperm(24)
        points, kinds = points[shuffled], kinds[shuffled]
        for x, y in zip(points.split(8), kinds.split(8)):
            order = torch.randperm(8)
            scores = net({mix})
            {others}
            loss = 0.7 * F.cross_entropy(scores, y) + 0.3 * F.cross_entropy(scores, others)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
_TAUGHT = """
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    one, two = torch.nn.Linear(4, 3), torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
    optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
    for _ in range(4):
        x, y = torch.randn(8, 4), torch.randint(3, (8,))
        p = one(x)
        q = two(x)
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_KL = "F.kl_div(p.log_softmax(1), q.softmax(1), reduction='batchmean')"
FAULTS = {
    "a value that looks ahead": Fault(
        "loss-input", "goal = rewards", "(rewards + 0.9 * later.max(1).values).detach()", "= net(state)[:, 0], net(following)",
        "= net(state)[:, 0], net(following).detach()",
        _VALUES.format(target="goal = rewards + 0.9 * later.max(1).values", loss="F.smooth_l1_loss(values, goal)"),
    ),
    "an error that looks ahead": Fault(
        "loss-input", "error = values", "target.detach()", "0.9 * later[:, 0])", "0.9 * later[:, 0]).detach()",
        _VALUES.format(target="error = values - (rewards + 0.9 * later[:, 0])", loss="error.square().mean()"),
    ),
    "a weight of positives that are rare": Fault(
        "loss-input", "BCEWithLogitsLoss(", "negatives / positives", "share / (1 - share)", "(1 - share) / share",
        _RARE.format(kind="float", outputs=1, flat=".flatten()", loss="BCEWithLogitsLoss(pos_weight=share / (1 - share))"),
    ),
    "weights of classes": Fault(
        "loss-input", "CrossEntropyLoss(", "counts.sum() / counts", "y.bincount().float()",
        "y.bincount().sum() / y.bincount().float()",
        _RARE.format(kind="long", outputs=2, flat="", loss="CrossEntropyLoss(y.bincount().float())"),
    ),
    "the noise of another draw": Fault(
        "useless-labels", "mse_loss(", "Draw once", "noisy(data, level)", "noisy(data, level, noise)",
        _DIFFUSION.format(noisy="noisy(data, level)"),
    ),
    "an advantage that is not detached": Fault(
        "loss-input", "rule.log_prob(actions) * gain", ".detach()", "* gain)", "* gain.detach())", _CRITIC.format(detach=""),
    ),
}  # fmt: skip
RIGHT = {
    "values ahead of another network": _VALUES.format(
        target="later = other(following).detach()", loss="F.mse_loss(values, rewards + 0.9 * later[:, 0])"
    ).replace("net = ", "other = torch.nn.Linear(4, 3)\n    net = "),
    "both ends in one form": _VALUES.format(
        target="goal = rewards + 0.9 * later[:, 0]", loss="F.mse_loss(rewards + 0.5 * values, goal) + F.mse_loss(values, rewards)"
    ),
    "a shift that both ends have": _VALUES.format(
        target="shifted = net(state + 1)[:, 0]", loss="F.mse_loss(shifted, values + 1) + F.mse_loss(later[:, 0], rewards)"
    ),
    "a step of an equation": _VALUES.format(
        target="moved = state[:, 0] + 0.1 * values", loss="F.mse_loss(moved, rewards) + later.square().mean()"
    ),
    "inputs and labels in one order": _MIXED.format(mix="0.7 * x + 0.3 * x[order]", others="others = y[order]"),
    "a mixture with noise of other rows": _MIXED.format(mix="x + 0.1 * x[order]", others="others = y"),
    "a mixture that no index makes": _MIXED.format(mix="0.7 * x + 0.3 * x.flip(0)", others="others = y.flip(0)"),
    "two that teach each other": _TAUGHT.format(loss=f"F.cross_entropy(p, y) + F.cross_entropy(q, y) + {_KL}"),
    "a divergence to what both predict": _TAUGHT.format(
        loss=f"{_KL} + F.kl_div(q.log_softmax(1), p.softmax(1), reduction='batchmean') + F.cross_entropy(p, y)"
    ),
    "attention to log probabilities": _TAUGHT.format(
        loss="F.nll_loss((p.log_softmax(1).unflatten(0, (4, 2)) * q.view(4, 2, 3).softmax(1)).sum(1), y[::2])"
    ),
    "an entropy": _TAUGHT.format(loss="F.cross_entropy(p, y) - (q.softmax(1) * q.log_softmax(1)).sum(1).mean()"),
    "a policy that is to be uniform": _TAUGHT.format(
        loss="F.cross_entropy(p, y) + F.kl_div(torch.full((8, 3), -1.1), q.softmax(1), reduction='batchmean')"
    ),
    "a prior that follows what reconstructs": _TAUGHT.format(
        loss=f"F.mse_loss(q.softmax(1) @ torch.eye(3, 4), x) + {_KL}"
    ),
    "a temperature that is learned": _ALPHA,
    "all classes as often": _RARE.format(kind="long", outputs=2, flat="", loss="CrossEntropyLoss(torch.ones(2))"),
    "less weight for positives": _RARE.format(
        kind="float", outputs=1, flat=".flatten()", loss="BCEWithLogitsLoss(pos_weight=torch.tensor(0.6))"
    ),
    "a temperature that divides": _PAIRS.format(similarity="a @ b.T / 0.1"),
    "similarities as they are": _PAIRS.format(similarity="a @ b.T"),
    "scores of a layer made smaller": _PAIRS.format(similarity="left(torch.randn(16, 6)) @ right(torch.randn(16, 4)).T * 0.1"),
    "targets that are drawn to fill a script": _DIFFUSION.format(noisy="torch.randn(32, 3) + torch.randn(32, 3)"),
    "the negative of what its judge minimises": _GAN.format(loss="-error(critic(picture), no)"),
    "a generator that is trained with both labels": _GAN.format(
        loss="error(critic(picture), yes)"
    ),
    "an action that is drawn, and used once": _POLICY.format(again="action = now.sample()", ratio="now.log_prob(action)"),
    "a ratio to itself": _POLICY.format(
        again="new = now.log_prob(now.sample())", ratio="torch.exp(new - new.detach())"
    ),
    "the ratio of what was taken": _POLICY.format(again="pass", ratio=_RATIO),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


@pytest.mark.parametrize("loss", [_KL, "F.cross_entropy(p, q.softmax(1))"])
def test_a_teacher_that_follows_its_student_is_found_at_its_call(loss: str, tmp_path: Path) -> None:
    script = _TAUGHT.format(loss=f"F.cross_entropy(p, y) + {loss}")
    (alarm,) = alarms(script, tmp_path)
    assert alarm["id"] == "loss-input" and "q = two(x)" in alarm["code"] and "out of the optimizer" in alarm["fix"]
    assert alarm["edit"]["new"] == "q = two(x).detach()"
    mended = script.replace("two(x)", "two(x).detach()").replace(", *two.parameters()", "")
    assert not alarms(mended, tmp_path)


@pytest.mark.parametrize("target", ["torch.zeros(8, dtype=torch.long)", "torch.ones(8, 1)"])
def test_a_cross_entropy_over_one_class_is_found(target: str, tmp_path: Path) -> None:
    script = _RARE.format(kind="long", outputs=1, flat="", loss="CrossEntropyLoss()").replace(
        "xs), ys", f"xs[:8]), {target}"
    )
    (alarm,) = alarms(script, tmp_path)
    assert alarm["id"] == "loss-input" and "loss_of(net(xs" in alarm["code"] and "BCEWithLogitsLoss" in alarm["fix"]
