"""The advice of the older checks, followed word for word, heals the fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, shows_and_heals

FAULTS = [
    Fault(
        "freed-graph",
        "self.kept.append(",
        "Empty policy.kept in every step behind script.py:16, so that nothing of the step before is in it: policy.kept.clear()",
        "    loss.backward()\n",
        "    loss.backward()\n    policy.kept.clear()\n",
        """
        import torch
        torch.manual_seed(0)
        class Policy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.kept = torch.nn.Linear(3, 2), []
            def act(self, state):
                chances = self.net(state).softmax(-1)
                self.kept.append(chances[0])
        policy = Policy()
        for episode in range(3):
            for step in range(2):
                policy.act(torch.randn(3))
            loss = -torch.log(torch.stack(policy.kept)).sum()
            loss.backward()
        """,
    ),
    Fault(
        "stale-saved",
        "gate.mul_(2)",
        "In script.py:6, make a new tensor: gate.mul(2) instead of gate.mul_(2).",
        "gate.mul_(2)",
        "gate.mul(2)",
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        for step in range(3):
            gate = torch.sigmoid(layer(torch.ones(2, 3)))
            loss = gate.mul_(2).sum()
            loss.backward()
        """,
    ),
    Fault(
        "stale-saved",
        "gate *= 0.5",
        "In script.py:6, make a new tensor: gate = gate * 0.5 instead of gate *= 0.5.",
        "gate *= 0.5",
        "gate = gate * 0.5",
        """
        import torch
        layer = torch.nn.Linear(3, 3)
        for step in range(3):
            gate = torch.sigmoid(layer(torch.ones(2, 3)))
            gate *= 0.5
            gate.sum().backward()
        """,
    ),
    Fault(
        "stale-saved",
        "step_critic.step()",
        "script.py:15, compute actor_loss again with the new weights: repeat script.py:11",
        "    step_critic.step()\n",
        "    step_critic.step()\n    score = critic(action)\n    actor_loss = -score.mean()\n",
        """
        import torch
        torch.manual_seed(0)
        actor = torch.nn.Linear(3, 2)
        critic = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        step_actor = torch.optim.SGD(actor.parameters(), lr=0.1)
        step_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
        for step in range(3):
            action = actor(torch.randn(5, 3))
            guess = critic(action.detach())
            score = critic(action)
            actor_loss = -score.mean()
            step_critic.zero_grad()
            (guess - 1).square().mean().backward()
            step_critic.step()
            step_actor.zero_grad()
            actor_loss.backward()
            step_actor.step()
        """,
    ),
    Fault(
        "unused-parameter",
        "self.extra = ",
        "Call the module in forward(), which begins in",
        "return self.body(x)",
        "return self.body(x) + self.extra(x)",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(3, 1)
                self.extra = torch.nn.Linear(3, 1)
            def forward(self, x):
                return self.body(x)
        net = Net()
        for step in range(3):
            net(torch.ones(2, 3)).sum().backward()
        """,
    ),
    Fault(
        "unused-parameter",
        "out = self.second(x)",
        "use out as well",
        "out = self.second(x)",
        "out = out + self.second(x)",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(3, 1)
                self.second = torch.nn.Linear(3, 1)
            def forward(self, x):
                out = self.first(x)
                out = self.second(x)
                return out
        net = Net()
        for step in range(3):
            net(torch.ones(2, 3)).sum().backward()
        """,
    ),
    Fault(
        "unused-parameter",
        "score = self.side(x)",
        "Use score in what follows",
        "return out",
        "return out + score",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.main = torch.nn.Linear(3, 1)
                self.side = torch.nn.Linear(3, 1)
            def forward(self, x):
                out = self.main(x)
                score = self.side(x)
                return out
        net = Net()
        for step in range(3):
            net(torch.ones(2, 3)).sum().backward()
        """,
    ),
    Fault(
        "none-grad",
        "print(hidden.grad)",
        "Behind script.py:5, call hidden.retain_grad()",
        "hidden = layer(torch.ones(2, 3))\n",
        "hidden = layer(torch.ones(2, 3))\nhidden.retain_grad()\n",
        """
        import torch
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 3)
        hidden = layer(torch.ones(2, 3))
        loss = hidden.square().mean()
        loss.backward()
        print(hidden.grad)
        """,
    ),
    Fault(
        "gradient-not-reset",
        "loss.backward()",
        "Call optimizer.zero_grad() once in every step",
        "    loss.backward()\n",
        "    optimizer.zero_grad()\n    loss.backward()\n",
        """
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            optimizer.step()
        """,
    ),
    Fault(
        "no-update",
        "loss.backward()",
        "Call optimizer.step() after backward(), and optimizer.zero_grad() only after that",
        "    optimizer.zero_grad()\n    optimizer.step()\n",
        "    optimizer.step()\n    optimizer.zero_grad()\n",
        """
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
        """,
    ),
    Fault(
        "nonleaf-parameter",
        "optimizer = torch.optim.SGD(",
        "Make the optimizer of script.py:4 after the model is complete",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel[1] = torch.nn.Linear(3, 1)\n",
        "model[1] = torch.nn.Linear(3, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
        """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model[1] = torch.nn.Linear(3, 1)
        for step in range(4):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Fault(
        "growing-graph",
        "total += loss",
        "In script.py:8, hand over what has no graph: total += loss.detach()",
        "total += loss",
        "total += loss.detach()",
        """
        import torch
        model = torch.nn.Linear(3, 1)
        total = 0.0
        for step in range(4):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            total += loss
        """,
    ),
    Fault(
        "freed-graph",
        "state = cell(",
        "state = state.detach()",
        "    loss.backward()\n",
        "    loss.backward()\n    state = state.detach()\n",
        """
        import torch
        cell = torch.nn.RNNCell(2, 3)
        state = torch.zeros(1, 3)
        for step in range(3):
            state = cell(torch.ones(1, 2), state)
            loss = state.sum()
            loss.backward()
        """,
    ),
    Fault(
        "no-graph",
        "loss = torch.tensor(",
        "use the tensor itself; to join several, torch.stack keeps their graphs",
        "torch.tensor(losses)",
        "torch.stack(losses)",
        """
        import torch
        model = torch.nn.Linear(3, 1)
        losses = [model(torch.ones(2, 3)).mean() for _ in range(3)]
        loss = torch.tensor(losses).sum()
        loss.backward()
        """,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{one.id}: {one.at}" for one in FAULTS])
def test_the_fault_is_at_its_line_and_its_advice_heals_it(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # paths are told from the current folder on
    shows_and_heals(fault, tmp_path)
