"""Calls that run without an error and do something else than they look like: found at their line, healed by the advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

LOOP = """
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            x, y = torch.randn(8, 3), torch.randn(8)
"""
TARGETS = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.target = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(2))
                self.target.requires_grad_(False)
            def forward(self, x, y):
                with torch.no_grad():
                    for weight, average in zip(self.net.parameters(), self.target.parameters()):
                        average.data.lerp_(weight.data, 0.1)
                    target = self.target(y)
                return (self.net(x) - target).square().mean()
        net = Net()
"""
FAULTS = {
    "advantages of every return with every value": Fault(
        "broadcast",
        "advantage = returns - critic(x)",
        ".squeeze(1)",
        "critic(x)\n",
        "critic(x).squeeze(1)\n",
        """
        import torch
        policy, critic = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
        opt = torch.optim.Adam([*policy.parameters(), *critic.parameters()])
        for i in range(4):
            x, returns = torch.randn(8, 3), torch.randn(8)
            draws = torch.distributions.Categorical(logits=policy(x))
            action = draws.sample()
            advantage = returns - critic(x)
            loss = advantage.square().mean() - (draws.log_prob(action) * advantage.detach()).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a smooth loss of a column and a row": Fault(
        "loss-input",
        "loss = nn.functional.smooth_l1_loss(net(x), y)",
        ".squeeze(1)",
        "net(x), y",
        "net(x).squeeze(1), y",
        f"""
        import torch
        from torch import nn
        net = nn.Linear(3, 1)
{LOOP}
            loss = nn.functional.smooth_l1_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a teacher that drops elements": Fault(
        "wrong-mode",
        "target = teacher(x)",
        "Call teacher.eval() before the training steps",
        "for x in",
        "teacher.eval()\n        for x in",
        """
        import torch
        from torch import nn
        net, teacher = nn.Linear(3, 1), nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for x in torch.randn(5, 8, 3):
            with torch.no_grad():
                target = teacher(x)
            opt.zero_grad()
            (net(x) - target).square().mean().backward()
            opt.step()
        """,
    ),
    "statistics of a part that is frozen": Fault(
        "wrong-mode",
        "net.train()",
        "Call net[1].eval()",
        "net.train()",
        "net.train(); net[1].eval()",
        """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        net[:2].requires_grad_(False)
        opt = torch.optim.SGD(net[2].parameters(), lr=0.01)
        for x in torch.randn(5, 8, 3):
            net.train()
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()
        """,
    ),
    "validation without eval()": Fault(
        "wrong-mode",
        "error = (net(held_out) - 1).abs().mean()",
        "Call .eval() on the model before",
        "    with torch.no_grad():\n",
        "    net.eval()\n    with torch.no_grad():\n",
        """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        opt, held_out = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 3)
        for epoch in range(3):
            net.train()
            opt.zero_grad()
            (net(torch.randn(8, 3)) - 1).square().mean().backward()
            opt.step()
            with torch.no_grad():
                error = (net(held_out) - 1).abs().mean()
        """,
    ),
    "validation without eval(), of a network that has its own targets": Fault(
        "wrong-mode",
        "error = net(torch.randn(8, 3), torch.randn(8, 3))",
        "Call .eval() on the model before",
        "    with torch.no_grad():\n        error",
        "    net.eval()\n    with torch.no_grad():\n        error",
        f"""
        import torch
        from torch import nn
{TARGETS}
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for epoch in range(3):
            net.train()
            opt.zero_grad()
            net(torch.randn(8, 3), torch.randn(8, 3)).backward()
            opt.step()
            with torch.no_grad():
                error = net(torch.randn(8, 3), torch.randn(8, 3))
        """,
    ),
}
RIGHT = {
    "statistics that are collected before the training": """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        with torch.no_grad():
            for _ in range(9):
                net(torch.randn(16, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(4):
            loss = (net(torch.randn(8, 3)) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "noise in the shape of waves, as many as they are long": """
        import torch
        net = torch.nn.Linear(8, 8)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            waves = torch.sin(torch.arange(8) / 8 + torch.rand(8, 1))
            noise = torch.randn_like(waves)
            loss = (net(waves + noise) - noise).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "a phase for each sample, and as many positions as samples": """
        import torch
        net, steps = torch.nn.Linear(8, 8), torch.arange(8) / 8 * 6.28
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            wave = torch.sin(steps + torch.rand(8, 1))
            opt.zero_grad()
            (net(wave) - wave).square().mean().backward()
            opt.step()
            print(wave.mean().item(), (torch.linspace(0, 1, 8) * torch.rand(8, 1)).mean().item())
    """,
    "all pairs, as columns and rows": """
        import torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            x, y = torch.randn(8, 3), torch.randn(8)
            score = net(x).squeeze(1)
            margin = (score[:, None] - score) * (y.unsqueeze(1) - y).sign()
            loss = (1 - margin).relu().mean() + (score.unsqueeze(1) - score.unsqueeze(0)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "distances of all pairs, and an optimizer that goes up": """
        import torch
        net = torch.nn.Linear(3, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.01, maximize=True)
        for i in range(4):
            z = net(torch.randn(8, 3))
            squares = z.square().sum(1, keepdim=True)
            lengths = z.square().sum(1)
            distances = squares + lengths - 2 * z @ z.t()
            opt.zero_grad()
            (-(-distances).exp().mean()).backward()
            opt.step()
            opt.zero_grad()
            z.detach_()
            (-torch.nn.functional.mse_loss(net(z), z)).backward()
            opt.step()
    """,
    "heads that are split and joined": """
        import torch
        net = torch.nn.Linear(6, 6)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            h = net(torch.randn(4, 5, 6)).view(4, 5, 2, 3).transpose(1, 2)
            h = h.transpose(1, 2).reshape(4, 5, 6).reshape(4, 30).view(4, 5, 6).view(4, 1, 5, 6)
            opt.zero_grad()
            h.square().mean().backward()
            opt.step()
    """,
    "an attention of torch's own with as many samples as a head has elements": """
        import torch
        net = torch.nn.MultiheadAttention(8, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(3):
            x = torch.randn(5, 4, 8)
            opt.zero_grad()
            net(x, x, x)[0].square().mean().backward()
            opt.step()
    """,
    "a generator that gives a discriminator samples, without recording": """
        import torch
        from torch import nn
        G = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        D = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(8, 1))
        g, d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        for i in range(4):
            with torch.no_grad():
                fake = G(torch.randn(8, 3))
            d.zero_grad()
            (D(fake).relu().mean() + (1 - D(torch.randn(8, 4))).relu().mean()).backward()
            d.step()
            g.zero_grad()
            (-D(G(torch.randn(8, 3))).mean()).backward()
            g.step()
    """,
    "Monte Carlo dropout, a teacher, and statistics estimated anew": """
        import torch
        from torch import nn
        net, teacher = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)) for _ in range(2))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        teacher.eval()
        data = [torch.randn(8, 3) for _ in range(4)]
        for x in data:
            with torch.no_grad():
                target = teacher(x)
            opt.zero_grad()
            (net(x) - target).square().mean().backward()
            opt.step()
        net.eval()
        for module in net.modules():
            if isinstance(module, nn.Dropout):
                module.train()
        with torch.no_grad():
            draws = torch.stack([net(data[0]) for _ in range(5)]).var(0)
    """,
    "a network that computes its own targets, the first time where it is made": f"""
        import torch
        from torch import nn
{TARGETS}
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            loss = net.forward(torch.randn(8, 3), torch.randn(8, 3)) if i == 0 else net(torch.randn(8, 3), torch.randn(8, 3))
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "a network that looks at what it makes of another view, in each step": """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.last = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 4)
            def forward(self, x, y):
                with torch.no_grad():
                    self.spread = self.net(y).std(0).mean().item()
                return (self.last(self.net(x)) - y.mean()).square().mean()
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            loss = net(torch.randn(8, 3), torch.randn(8, 3))
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "a state that is loaded into another model": """
        import torch
        net, average = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
        average.load_state_dict(net.state_dict())
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(3):
            opt.zero_grad()
            (net(torch.randn(8, 3)) - 1).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
        net.load_state_dict({key: value.clone() for key, value in net.state_dict().items()})
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
