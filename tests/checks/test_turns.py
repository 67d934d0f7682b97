"""Which loss trains whom: gradients that stay for another's step, that are thrown away, and graphs kept for nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import alarms
from tests.checks.test_scripts import check, written
from tests.walker.graphs import needs_raw

RIGHT = {
    "an attack that resets what it leaves": """
        import torch
        def worst(net, opt, x):
            x = x.clone().requires_grad_()
            net(x).square().mean().backward()
            opt.zero_grad()
            return (x + 0.1 * x.grad.sign()).detach()
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(8):
            opt.zero_grad()
            net(worst(net, opt, torch.randn(5, 3))).square().mean().backward()
            opt.step()
    """,
    "an attack on the batch that is learned from as well": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        def step(x):
            opt.zero_grad()
            x.requires_grad_()
            net(x).square().mean().backward()
            (net((x + 0.1 * x.grad.sign()).detach())).square().mean().backward()
            opt.step()
        for i in range(8):
            step(torch.randn(5, 3))
    """,
    "one helper that runs backward for two networks, with one clip for both": """
        import torch
        clip_ = torch.nn.utils.clip_grad_norm_
        a, b = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
        opts = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (a, b)]
        def back(loss, opt):
            opt.zero_grad()
            loss.backward()
        for i in range(9):
            for j, (net, opt) in enumerate(zip((a, b), opts)):
                back(net(torch.randn(4, 3)).square().mean(), opt)
                clip_([*a.parameters(), *b.parameters()], 1.0)
                if j or i % 3:
                    opt.step()
    """,
    "gradients of several optimizers that are clipped in one go": """
        import torch
        clip_ = torch.nn.utils.clip_grad_norm_
        body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        first, second = torch.optim.SGD(body.parameters(), lr=0.01), torch.optim.SGD(head.parameters(), lr=0.01)
        for i in range(6):
            head(body(torch.randn(4, 3))).square().mean().backward()
            clip_(body.parameters(), 1.0)
            second.step()
            first.step()
            first.zero_grad()
            second.zero_grad()
    """,
    "a loss of each part that only one number is taken of": """
        import torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        def measure(x):
            opt.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return sum(p.grad.square().sum() for p in net.parameters())
        for i in range(5):
            noise = [float(measure(torch.randn(4, 3))) for part in range(i % 3 + 1)]
            opt.step()
    """,
    "two losses of one graph, and an encoder that waits for both heads": """
        import torch
        from torch import nn
        body, left, right = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
        opts = [torch.optim.SGD(part.parameters(), lr=0.01) for part in (body, left, right)]
        for _ in range(5):
            h = body(torch.randn(8, 3)).tanh()
            for opt in opts:
                opt.zero_grad()
            left(h).square().mean().backward(retain_graph=True)
            opts[1].step()
            (right(h) - 1).square().mean().backward()
            opts[2].step()
            opts[0].step()
    """,
    "an actor that learns through its critic": """
        import torch
        from torch import nn
        actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
        a, c = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
        for _ in range(5):
            s = torch.randn(8, 3)
            with torch.no_grad():
                target = 1 + 0.9 * critic(torch.cat([s, actor(s)], 1))
            c.zero_grad()
            (critic(torch.cat([s, torch.randn(8, 2)], 1)) - target).square().mean().backward()
            c.step()
            a.zero_grad()
            (-critic(torch.cat([s, actor(s)], 1)).mean()).backward()
            a.step()
    """,
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


@pytest.mark.parametrize("again", [False, True])
@needs_raw
def test_a_graph_that_is_retained_for_nobody_is_a_note(again: bool, tmp_path: Path) -> None:
    script = """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        def fit(steps):
            opt = torch.optim.Adam(net.parameters())
            for _ in range(steps):
                loss = ((out := net(torch.randn(64, 3))) - 1).square().mean()
                opt.zero_grad()
                loss.backward(retain_graph=True)
                AGAIN
                opt.step()
        fit(5)
    """
    found, code = check(
        written(tmp_path, script.replace("AGAIN", "(0.1 * out).mean().backward()" if again else "pass"))
    )
    kept = [one for one in found if one["id"] == "retained-graph"]
    assert code == 0 and len(kept) == (not again)
    assert all(one["line"] == 9 and one["severity"] == "note" for one in kept)
