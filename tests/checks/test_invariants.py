"""What holds of every training run: faults that only the whole run shows, each healed by its advice, and scripts that are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.cli.main import cli
from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.checks.test_scripts import written
from tests.command_line import CliRunner

WARM = """
        import torch
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: min(1.0, (epoch + 1) / 10))
        for epoch in range({epochs}):
            for step in range({steps}):
                opt.zero_grad()
                (net(torch.randn(8, 4)) - 1).square().mean().backward()
                opt.step()
            schedule.step()
    """
FAULTS = {
    "an update of a dict of tensors that is recorded": Fault(
        "nonleaf-parameter",
        'weights["w"] = weights["w"]',
        "with torch.no_grad(): weights['w'] -= lr * gradient",
        '    weights["w"] = weights["w"] - 0.1 * g\n    weights["b"] = weights["b"] - 0.1 * h\n',
        "    with torch.no_grad(): weights['w'] -= 0.1 * g; weights['b'] -= 0.1 * h\n",
        """
        import torch
        x = torch.randn(8, 3)
        weights = {"w": torch.zeros(3, requires_grad=True), "b": torch.zeros(1, requires_grad=True)}
        for i in range(6):
            loss = (x @ weights["w"] + weights["b"] - 1).square().mean()
            g, h = torch.autograd.grad(loss, [weights["w"], weights["b"]])
            weights["w"] = weights["w"] - 0.1 * g
            weights["b"] = weights["b"] - 0.1 * h
        """,
    )
}
RIGHT = {
    "LBFGS that has converged in its first step": """
        import torch
        x = torch.linspace(0, 4, 80, dtype=torch.float64)
        y = 2.5 * torch.exp(-0.8 * x)
        fitted = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
        opt = torch.optim.LBFGS([fitted], max_iter=40, line_search_fn="strong_wolfe")
        def closure():
            opt.zero_grad()
            loss = (fitted[0] * torch.exp(-fitted[1] * x) - y).square().mean()
            loss.backward()
            return loss
        for outer in range(8):
            opt.step(closure)
    """,
    "sharpness-aware minimization": """
        import torch
        class Sharpness(torch.optim.Optimizer):
            def __init__(self, params, base, rho=0.05, **options):
                super().__init__(params, dict(rho=rho, **options))
                self.base = base(self.param_groups, **options)
                self.param_groups = self.base.param_groups
            @torch.no_grad()
            def climb(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        self.state[p]["at"] = p.detach().clone()
                        p.add_(p.grad, alpha=group["rho"])
                self.zero_grad()
            @torch.no_grad()
            def descend(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.copy_(self.state[p]["at"])
                self.base.step()
                self.zero_grad()
        net = torch.nn.Linear(4, 1)
        opt = Sharpness(net.parameters(), torch.optim.SGD, lr=0.1)
        for i in range(5):
            x = torch.randn(8, 4)
            (net(x) - 1).square().mean().backward()
            opt.climb()
            (net(x) - 1).square().mean().backward()
            opt.descend()
    """,
    "a cosine that ends at zero, and a warm-up": """
        import torch
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
        warm = torch.optim.lr_scheduler.LinearLR(opt, 1e-3, total_iters=5)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 25)
        schedule = torch.optim.lr_scheduler.SequentialLR(opt, [warm, cosine], [5])
        for i in range(30):
            opt.zero_grad()
            (net(torch.randn(8, 4)) - 1).square().mean().backward()
            opt.step()
            schedule.step()
    """,
    "a warm-up of which the run sees the first epoch only": WARM.format(epochs=1, steps=5),
    "a warm-up that ends at the square of its rate": WARM.format(epochs=2, steps=5).replace("0.1", "0.2"),
    "a bias in front of a batch norm": """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=1e-3)
        for i in range(10):
            opt.zero_grad()
            (net(torch.randn(16, 4)) - 1).square().mean().backward()
            opt.step()
    """,
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


@pytest.mark.slow
def test_a_variable_that_comes_after_the_first_call_is_checked_when_the_script_has_ended(tmp_path: Path) -> None:
    script = """
        import torch
        net = torch.nn.Linear(3, 1)
        net(torch.ones(2, 3)).sum().backward()
        late = net(torch.ones(2, 3)).detach()
    """
    path = written(tmp_path, script)
    result = CliRunner().invoke(cli, ["check", f"{path}:late"])
    assert result.exit_code == 1 and "late has no graph" in result.output
    assert "no variable 'missing'" in CliRunner().invoke(cli, ["check", f"{path}:missing"]).output


def test_methods_that_the_user_replaced_are_not_called(tmp_path: Path) -> None:
    """Numbers are read through torch's own methods, not through what a script counts with."""
    path = written(
        tmp_path,
        f"""
        import torch
        count = {{}}
        def counted(name):
            old = getattr(torch.Tensor, name)
            def method(self, *a, **k):
                count[name] = count.get(name, 0) + 1
                return old(self, *a, **k)
            setattr(torch.Tensor, name, method)
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        names = "item detach tolist sum abs any all max isfinite flatten __bool__ __float__ numpy cpu"
        restored = {{name: vars(torch.Tensor).get(name) for name in names.split()}}
        for name in restored:
            counted(name)
        opt = torch.optim.SGD([*net.parameters()][:2], 0.1)
        for step in range(6):
            opt.zero_grad()
            loss = torch.log(torch.nn.functional.relu(net(torch.randn(4, 3))) + 1).mean()
            loss.backward()
            opt.step()
        for name, method in restored.items():
            setattr(torch.Tensor, name, method) if method else delattr(torch.Tensor, name)
        open({str(tmp_path / "count.txt")!r}, "w").write(repr(count))
        """,
    )
    CliRunner().invoke(cli, ["check", str(path)])
    assert (tmp_path / "count.txt").read_text() == "{}"
