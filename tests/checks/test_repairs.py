"""Advice that once made things worse, or stood behind advice that did: followed to the letter, each now heals its script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, shows_and_heals

FAULTS = {
    "an image that the critic's turn does not detach": Fault(
        "freed-graph",
        "d_loss = critic(fake).mean() - critic(real).mean()",
        "use fake.detach() instead of fake",
        "d_loss = critic(fake)",
        "d_loss = critic(fake.detach())",
        """
        import torch
        generator, critic = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh()), torch.nn.Linear(3, 1)
        opt_g, opt_d = torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)
        for i in range(3):
            real, fake = torch.randn(4, 3), generator(torch.randn(4, 2))
            d_loss = critic(fake).mean() - critic(real).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
            g_loss = -critic(fake).mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
        """,
    ),
    "a state that modules keep across batches": Fault(
        "freed-graph",
        "self.state = torch.tanh(self.state + self.layer(x))",
        "net[0].state = net[0].state.detach(); net[1].state = net[1].state.detach()",
        "    opt.step()\n",
        "    opt.step()\n    net[0].state = net[0].state.detach(); net[1].state = net[1].state.detach()\n",
        """
        import torch
        class Memory(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.state = torch.nn.Linear(3, 3), 0.0
            def forward(self, x):
                self.state = torch.tanh(self.state + self.layer(x))
                return self.state
        net = torch.nn.Sequential(Memory(), Memory())
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for batch in range(3):
            loss = torch.stack([net(torch.randn(2, 3)) for turn in range(2)]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "weights that are scaled after they require grad": Fault(
        "none-grad",
        "w = torch.randn(3, 1, requires_grad=True) * 0.1",
        "w = (torch.randn(3, 1) * 0.1).requires_grad_()",
        "w = torch.randn(3, 1, requires_grad=True) * 0.1",
        "w = (torch.randn(3, 1) * 0.1).requires_grad_()",
        """
        import torch
        torch.manual_seed(0)
        w = torch.randn(3, 1, requires_grad=True) * 0.1
        for i in range(3):
            loss = (torch.ones(2, 3) @ w).square().mean()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        """,
    ),
    "the same, in an optimizer": Fault(
        "raised",
        "w = torch.randn(3, 1, requires_grad=True) * 0.1",
        "w = (torch.randn(3, 1) * 0.1).requires_grad_()",
        "w = torch.randn(3, 1, requires_grad=True) * 0.1",
        "w = (torch.randn(3, 1) * 0.1).requires_grad_()",
        """
        import torch
        w = torch.randn(3, 1, requires_grad=True) * 0.1
        optimizer = torch.optim.SGD([w], lr=0.1)
        for i in range(3):
            loss = (torch.ones(2, 3) @ w).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    "the same, used in every step": Fault(
        "freed-graph",
        "self.weights = torch.randn(3, 1, requires_grad=True).exp()",
        "self.weights = torch.randn(3, 1).exp().requires_grad_()",
        "self.weights = torch.randn(3, 1, requires_grad=True).exp()",
        "self.weights = torch.randn(3, 1).exp().requires_grad_()",
        """
        import torch
        class Scratch:
            def __init__(self):
                self.weights = torch.randn(3, 1, requires_grad=True).exp()
            def __call__(self, x):
                return x @ self.weights
        net = Scratch()
        for i in range(3):
            loss = net(torch.ones(2, 3)).mean()
            loss.backward()
        """,
    ),
    "a parameter that is moved when it is made": Fault(
        "nonleaf-parameter",
        "self.scale = torch.nn.Parameter(torch.ones(3)).to(torch.float64)",
        "self.scale = torch.nn.Parameter(torch.ones(3).to(torch.float64))",
        "self.scale = torch.nn.Parameter(torch.ones(3)).to(torch.float64)",
        "self.scale = torch.nn.Parameter(torch.ones(3).to(torch.float64))",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(3)).to(torch.float64)
                self.fc = torch.nn.Linear(3, 1).double()
            def forward(self, x):
                return self.fc(x * self.scale)
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            loss = net(torch.ones(2, 3, dtype=torch.float64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    "a logarithm of zero": Fault(
        "nonfinite",
        "loss = -torch.log(p).mean()",
        "torch.log(x + 1e-6)",
        "torch.log(p)",
        "torch.log(p + 1e-6)",
        """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 4)
        for i in range(3):
            p = torch.relu(net(torch.randn(8, 3)))
            loss = -torch.log(p).mean()
            loss.backward()
        """,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_the_advice_heals(fault: Fault, tmp_path: Path) -> None:
    shows_and_heals(fault, tmp_path)
