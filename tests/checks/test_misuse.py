"""Calls that run without an error and do something else than they look like: found at their line, healed by the advice."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import torch

from gradviz.formulas.dimensions import order_before
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
    "an accuracy of a column": Fault(
        "broadcast",
        "right = (net(x) > 0) == (y > 0)",
        ".squeeze(1)",
        "(net(x) > 0)",
        "(net(x).squeeze(1) > 0)",
        f"""
        import torch
        net = torch.nn.Linear(3, 1)
{LOOP}
            opt.zero_grad()
            (net(x).squeeze(1) - y).square().mean().backward()
            opt.step()
            with torch.no_grad():
                right = (net(x) > 0) == (y > 0)
                print(right.float().mean())
        """,
    ),
    "a smooth loss of a column and a row": Fault(
        "broadcast",
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
    "an error that is made larger": Fault(
        "wrong-sign",
        "loss = -nn.functional.mse_loss(",
        "Leave out the minus",
        "loss = -nn",
        "loss = nn",
        f"""
        import torch
        from torch import nn
        net = nn.Linear(3, 1)
{LOOP}
            loss = -nn.functional.mse_loss(net(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "logarithms that are made smaller": Fault(
        "wrong-sign",
        "loss = chances[",
        "Put a minus before it",
        "loss = chances[",
        "loss = -chances[",
        f"""
        import torch
        from torch import nn
        net = nn.Linear(3, 4)
{LOOP}
            chances = net(x).log_softmax(1)
            loss = chances[torch.arange(8), (y > 0).long()].mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "soft targets, and probabilities over the batch": Fault(
        "loss-input",
        "chances = net(x).log_softmax(0)",
        "dim=1 in place of dim=0",
        "log_softmax(0)",
        "log_softmax(1)",
        f"""
        import torch
        from torch import nn
        net = nn.Linear(3, 4)
{LOOP}
            chances = net(x).log_softmax(0)
            loss = -(chances * torch.rand(8, 4).softmax(1)).sum(1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "time in front by a view": Fault(
        "reshape-mixes",
        "out, _ = net(batch.view(6, 8, 3))",
        ".permute(1, 0, 2) in place of .view(...)",
        ".view(6, 8, 3)",
        ".permute(1, 0, 2)",
        """
        import torch
        net = torch.nn.GRU(3, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            batch = torch.randn(8, 6, 3)
            out, _ = net(batch.view(6, 8, 3))
            opt.zero_grad()
            out[-1].square().mean().backward()
            opt.step()
        """,
    ),
    "a functional dropout that nobody tells of the mode": Fault(
        "wrong-mode",
        "h = F.dropout(self.first(x).relu(), 0.3)",
        "training=self.training",
        "relu(), 0.3)",
        "relu(), 0.3, training=self.training)",
        """
        import torch
        import torch.nn.functional as F
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = torch.nn.Linear(3, 8), torch.nn.Linear(8, 1)
            def forward(self, x):
                h = F.dropout(self.first(x).relu(), 0.3)
                return self.last(h)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for epoch in range(3):
            net.train()
            opt.zero_grad()
            (net(torch.randn(8, 3)) - 1).square().mean().backward()
            opt.step()
            net.eval()
            with torch.no_grad():
                net(torch.randn(8, 3))
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
    "clipping what a loop has gone through": Fault(
        "no-effect",
        "weights = net.parameters()",
        "list(model.parameters())",
        "weights = net.parameters()",
        "weights = list(net.parameters())",
        """
        import torch
        from torch import nn
        net = nn.Linear(3, 1)
        weights = net.parameters()
        print(sum(weight.numel() for weight in weights))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(4):
            opt.zero_grad()
            (net(torch.randn(8, 3)) - 1).square().mean().backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            opt.step()
        """,
    ),
    "clipping what an optimizer has gone through": Fault(
        "no-effect",
        "nn.utils.clip_grad_value_(chosen, 1.0)",
        "list(model.parameters())",
        "chosen = filter(torch.is_tensor, net.parameters())",
        "chosen = list(net.parameters())",
        """
        import torch
        from torch import nn
        net = nn.Linear(3, 1)
        chosen = filter(torch.is_tensor, net.parameters())
        opt = torch.optim.SGD(chosen, lr=0.01)
        for i in range(4):
            opt.zero_grad()
            (net(torch.randn(8, 3)) - 1).square().mean().backward()
            nn.utils.clip_grad_value_(chosen, 1.0)
            opt.step()
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
    "a look at the data that is trained with": """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        everything = torch.randn(40, 3)
        for chosen in torch.arange(40).split(8):
            loss = (net(everything[chosen]) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                print(net(everything).std())
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


ATTENTION = """
    import torch
    def attention(net, x, heads=4):
        b, t, d = x.shape
        hd = d // heads
        q = net[0](x){split}
        v = net[1](x).reshape(b, t, heads, hd).transpose(1, 2)
        y = (q @ v.transpose(-2, -1)).softmax(-1) @ v
        return net[2](y{join})
    net = torch.nn.ModuleList(torch.nn.Linear({d}, {d}) for i in range(3))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for i in range(3):
        loss = (attention(net, torch.randn(16, {t}, {d})) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
SPLIT, JOIN = ".reshape(b, t, heads, hd).transpose(1, 2)", ".transpose(1, 2).reshape(b, t, d)"


@pytest.mark.parametrize(("t", "d"), [(5, 16), (5, 64), (6, 24), (10, 40)])
@pytest.mark.parametrize(
    ("split", "join", "healed"),
    [
        (".view(b, heads, t, hd)", JOIN, SPLIT),
        (".reshape((b, heads, -1, hd))", JOIN, ".reshape(b, -1, heads, hd).transpose(1, 2)"),
        (".view(*[b, heads, t, hd])", JOIN, ".reshape(16, {t}, 4, {hd}).transpose(1, 2)"),
        (SPLIT, ".reshape(b, t, d)", JOIN),
    ],
)
def test_heads_are_split_and_joined_as_printed(
    split: str, join: str, healed: str, t: int, d: int, tmp_path: Path
) -> None:
    """As many samples as elements of a row, or as a head has: the batch stays whole, whatever the sizes."""
    script = textwrap.dedent(ATTENTION.format(split=split, join=join, t=t, d=d))
    (found,) = alarms(script, tmp_path)
    healed = healed.format(t=t, hd=d // 4)
    advice = re.search(r": (\..*\)) in place of ", found["fix"])
    assert (found["id"], advice and advice[1]) == ("reshape-mixes", healed)
    mended = ATTENTION.format(split=healed if join == JOIN else SPLIT, join=JOIN if join == JOIN else healed, t=t, d=d)
    assert not alarms(mended, tmp_path)
    names: dict[str, object] = {}
    exec(textwrap.dedent(mended), names)
    x = torch.randn(16, t, d, requires_grad=True)
    names["attention"](names["net"], x)[3].sum().backward()  # type: ignore[operator]
    assert x.grad is not None
    assert x.grad.flatten(1).any(1).nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize(
    ("old", "new", "order"),
    [
        ((16, 4, 5, 4), (16, 5, 16), (0, 2, 1, 3)),
        ((16, 4, 10, 10), (16, 10, 40), (0, 2, 1, 3)),
        ((8, 32, 32, 3), (8, 3, 32, 32), (0, 3, 1, 2)),
        ((8, 1, 5, 3), (8, 3, 5), (0, 1, 3, 2)),
        ((8, 6, 3), (6, 8, 3), (1, 0, 2)),
        ((8, 6, 3), (18, 8), ()),
        ((16, 5, 16), (5, 16, 16), ()),
        ((16, 6, 16), (16, 4, 24), ()),
        ((16, 6, 3, 2), (16, 3, 12), (0, 2, 1, 3)),
    ],
)
def test_an_order_is_told_only_where_it_is_certain(
    old: tuple[int, ...], new: tuple[int, ...], order: tuple[int, ...]
) -> None:
    assert order_before(old, new) == order


def test_where_no_order_is_certain_the_advice_has_no_code(tmp_path: Path) -> None:
    script = """
        import torch
        net = torch.nn.RNN(16, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(3):
            out, _ = net(torch.randn(16, 5, 16).view(5, 16, 16))
            opt.zero_grad()
            out.square().mean().backward()
            opt.step()
    """
    (found,) = alarms(script, tmp_path)
    assert found["id"] == "reshape-mixes"
    assert "in place of" not in found["fix"] and "the batch, whole" in found["fix"]
