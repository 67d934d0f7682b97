"""A draw that a model goes on with is told where its gradient is zero, and left alone where it is the action of a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

FAULTS = {
    "a bottleneck with noise, in a class": Fault(
        "draw-without-gradient",
        "return self.head(torch.normal(h, self.width(h).exp())), h",
        "mean + std * torch.randn_like(std)",
        "torch.normal(h, self.width(h).exp())",
        "h + self.width(h).exp() * torch.randn_like(h)",
        """
        import torch
        class Noisy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.width, self.head = (torch.nn.Linear(a, b) for a, b in ((3, 4), (4, 4), (4, 1)))
            def forward(self, x):
                h = self.body(x)
                return self.head(torch.normal(h, self.width(h).exp())), h
        net = Noisy()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            y, h = net(torch.randn(8, 3))
            loss = (y - 1).square().mean() + 0.1 * h.square().mean() + 0.1 * net.width(h).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
}
RIGHT = {
    "a policy that weighs the log probability of its draws": """
        import torch
        policy, value = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
        opt = torch.optim.Adam([*policy.parameters(), *value.parameters()])
        for _ in range(3):
            x = torch.randn(8, 3)
            mean = policy(x)
            action = torch.normal(mean, torch.ones_like(mean))
            gain = -action.detach().square().sum(1) - value(x).squeeze(1)
            chance = -(action.detach() - mean).square().sum(1)
            loss = -(chance * gain.detach()).mean() + gain.square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
