"""The advice of the older checks, followed word for word, heals the fault."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gradviz.cli.main import cli
from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.checks.test_scripts import written
from tests.command_line import CliRunner
from tests.rows import every_other

FAULTS = [
    Fault(
        "unused-parameter",
        "return u + model.log_k.exp().item() * u",
        "In script.py:12, compute the loss from the tensors themselves",
        ".exp().item()",
        ".exp()",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(1, 1)
                self.log_k = torch.nn.Parameter(torch.tensor(0.0))
            def forward(self, t):
                return self.net(t)
        def residual(model, t):
            u = model(t)
            return u + model.log_k.exp().item() * u
        net = Net()
        optimizer = torch.optim.Adam(net.parameters())
        for step in range(5):
            optimizer.zero_grad()
            residual(net, torch.rand(8, 1)).square().mean().backward()
            optimizer.step()
        """,
    ),
    Fault(
        "unused-parameter",
        "np.add.at(total, [0, 1, 2], h.detach().numpy())",
        "In script.py:11, do this step with torch functions instead of NumPy.",
        "np.add.at(total, [0, 1, 2], h.detach().numpy())",
        "total = h",
        """
        import numpy as np
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.message, self.update = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            def forward(self, x):
                h = self.message(x)
                total = np.zeros((3, 2), dtype=np.float32)
                np.add.at(total, [0, 1, 2], h.detach().numpy())
                return self.update(x + torch.as_tensor(total))
        net = Net()
        optimizer = torch.optim.Adam(net.parameters())
        for step in range(5):
            optimizer.zero_grad()
            net(torch.ones(3, 2)).square().mean().backward()
            optimizer.step()
        """,
    ),
    Fault(
        "idle-optimizer",
        "score = D(fake.detach()).mean()",
        "In script.py:13, remove .detach().",
        "score = D(fake.detach()).mean()",
        "score = D(fake).mean()",
        """
        import torch
        G, D = torch.nn.Linear(4, 2), torch.nn.Linear(2, 1)
        opt_g, opt_d = (torch.optim.Adam(one.parameters()) for one in (G, D))
        for step in range(6):
            fake = G(torch.randn(8, 4))
            opt_d.zero_grad()
            loss = D(fake.detach()).mean() - D(torch.ones(8, 2)).mean()
            loss.backward()
            opt_d.step()
            opt_g.zero_grad()
            # the discriminator's opinion of what was made
            score = D(fake.detach()).mean()
            (-score).backward()
            opt_g.step()
        """,
    ),
    Fault(
        "gradient-not-reset",
        "loss.backward()",
        "Set w.grad = None once in every step",
        "        w -= 0.1 * w.grad\n",
        "        w -= 0.1 * w.grad\n        w.grad = None\n",
        """
        import torch
        w = torch.randn(3, requires_grad=True)
        for step in range(5):
            loss = (w - 1).square().sum()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
        """,
    ),
    Fault(
        "no-graph",
        "p.requires_grad = False",
        "In script.py:5, do not freeze what should be trained, such as the last layers.",
        "model.parameters()",
        "model[0].parameters()",
        """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        for p in model.parameters():
            p.requires_grad = False
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
        """,
    ),
    Fault(
        "freed-graph",
        "loss = -(policy(state).log_softmax(-1)[:, 0] * gain).mean()",
        "In script.py:8, use gain.detach() instead of gain: another loss and its optimizer train",
        "* gain)",
        "* gain.detach())",
        """
        import torch
        policy, value = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
        actor, critic = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (policy, value))
        for step in range(3):
            state = torch.ones(4, 3)
            gain = 1 - value(state).squeeze(-1)
            loss = -(policy(state).log_softmax(-1)[:, 0] * gain).mean()
            critic.zero_grad()
            gain.square().mean().backward()
            critic.step()
            actor.zero_grad()
            loss.backward()
            actor.step()
        """,
    ),
    Fault(
        "freed-graph",
        "out, memory = net(",
        "Detach memory after script.py:15: memory = tuple(part.detach() for part in memory).",
        "    loss.backward()\n",
        "    loss.backward()\n    memory = tuple(one.detach() for one in memory)\n",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = torch.nn.LSTM(2, 3)
            def forward(self, x, state):
                out, state = self.cell(x, state)
                return out, state
        net = Net()
        memory = (torch.zeros(1, 1, 3), torch.zeros(1, 1, 3))
        for step in range(3):
            out, memory = net(torch.ones(4, 1, 2), memory)
            loss = out.sum()
            loss.backward()
        """,
    ),
    Fault(
        "gradient-not-reset",
        "g_loss.backward()",
        "Call for_g.zero_grad() once in every step",
        "    g_loss.backward()",
        "    for_g.zero_grad()\n    g_loss.backward()",
        """
        import torch
        G, D = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
        for_g, for_d = (torch.optim.SGD(one.parameters(), lr=0.01) for one in (G, D))
        for step in range(4):
            for_d.zero_grad()
            fake = G(torch.randn(4, 2))
            d_loss = D(fake.detach()).sigmoid().mean() - D(torch.randn(4, 3)).sigmoid().mean()
            d_loss.backward()
            for_d.step()
            g_loss = -D(fake).sigmoid().mean()
            g_loss.backward()
            for_g.step()
        """,
    ),
    Fault(
        "constant-term",
        "penalty += p.norm().item()",
        "In script.py:8, compute the loss from the tensors themselves",
        "p.norm().item()",
        "p.norm()",
        """
        import torch
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(3):
            penalty = 0
            for p in net.parameters():
                penalty += p.norm().item()
            loss = net(torch.randn(4, 3)).square().mean() + 0.01 * penalty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Fault(
        "none-grad",
        "return None",
        "return a gradient in place of None for each input",
        "return None",
        "return gradient",
        """
        import torch
        class Step(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return (x > 0).float()
            @staticmethod
            def backward(ctx, gradient):
                return None
        encoder, decoder = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
        for step in range(3):
            loss = decoder(Step.apply(encoder(torch.randn(4, 3)))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Fault(
        "broadcast",
        "loss = (net(x) - y).square().mean()",
        ".squeeze(1) on the one with two dimensions",
        "net(x)",
        "net(x).squeeze(1)",
        """
        import torch
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters())
        for step in range(3):
            x, y = torch.randn(8, 3), torch.randn(8)
            loss = (net(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Fault(
        "freed-graph",
        "self.kept.append(",
        "Clear policy.kept in every step, after script.py:16, so that it keeps nothing of the step before",
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
        "compute the loss again after script.py:15.",
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
        "Call the module in forward(), or remove it",
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
        "none-grad",
        "print(hidden.grad)",
        "call hidden.retain_grad()",
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
        "optimizer.zero_grad()",
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
        "add a number: total += loss.item()",
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


@pytest.mark.slow
@pytest.mark.parametrize("fault", every_other(FAULTS), ids=[f"{one.id}: {one.at}" for one in FAULTS])
def test_the_fault_is_at_its_line_and_its_advice_heals_it(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # paths are told from the current folder on
    shows_and_heals(fault, tmp_path)


def test_what_is_put_into_a_container_ends_no_look_at_the_lines(tmp_path: Path) -> None:
    """`store[0] = ...` assigns no name that something could read, and NumPy may be told by name what to write into."""
    script = """
    import numpy as np
    import torch
    def collect(store, x):
        np.copyto(dst=np.zeros(x.shape), src=x.detach().numpy())
        store[0] = store[0] + x.detach().sum()
    a, b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
    for step in range(3):
        store, x = [0.0], torch.ones(2, 3)
        collect(store, a(x))
        optimizer.zero_grad()
        b(x).square().mean().backward()
        optimizer.step()
    """
    result = CliRunner().invoke(cli, ["check", str(written(tmp_path, script)), "--verbose"])
    assert "a.weight" in result.output and "could not be read" not in result.output


def test_one_line_that_stops_two_gradients_names_both(tmp_path: Path) -> None:
    script = """
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    def quantized(w):
        return torch.round(w * 8) / 8
    loss = (torch.ones(2, 3) @ quantized(net[0].weight) @ quantized(net[1].weight).T).square().mean()
    loss.backward()
    """
    (finding,) = [one for one in alarms(textwrap.dedent(script), tmp_path) if one["id"] == "no-slope"]
    assert "net.0.weight" in finding["summary"] and "net.1.weight" in finding["summary"]
