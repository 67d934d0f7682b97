"""Every check has a script in which following its advice heals the fault."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.checks
from gradviz.checks.registry import checks
from tests.checks.advice import Fault, shows_and_heals

TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""
HEAD = "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
GENTLE = TRAIN.replace("range(4)", "range(2)").replace("lr=0.01", "lr=1e-12").replace("square().mean()", "mean()")
LARGE = "for layer in model:\n    nn.init.normal_(layer.weight, std=3.0)"
CHANCES = "chances = torch.distributions.Normal(model(x).mean(), 1.0)"
ROWS = [
    Fault(
        "exploding-gradient",
        "loss = model(x)",
        "a smaller initialisation",
        "std=3.0",
        "std=0.3",
        f"{HEAD}model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))\n{LARGE}{GENTLE}",
    ),
    Fault(
        "dead-relu",
        "loss = nn.functional",
        "use torch.nn.LeakyReLU",
        "nn.ReLU()",
        "nn.LeakyReLU()",
        f"{HEAD}model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))"
        + TRAIN.replace("range(4)", "range(20)")
        .replace("lr=0.01", "lr=0.1")
        .replace("torch.randn(16, 8)", "torch.rand(16, 8) * 120")
        .replace("model(x).square().mean()", "nn.functional.cross_entropy(model(x), (x[:, 0] > 60).long())"),
    ),
    Fault(
        "dead-relu",
        "x.mean((2, 3))",
        "lower the learning rate",
        "* 1e6",
        "* 1",
        f"""{HEAD}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)
        self.last = nn.Linear(4, 3)
    def forward(self, x):
        x = nn.functional.max_pool2d(self.first(x).relu(), 2)
        x = self.second(x).relu(); x = nn.functional.dropout(x.mean((2, 3)), 0.1)
        return self.last(x)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(24):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 1, 10, 10)), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.param_groups[0]["lr"] = 0.01 * 1e6 if step == 10 else 0.01
    optimizer.step()
""",
    ),
    Fault(
        "no-graph",
        "loss = ",
        "do this step with torch functions instead of NumPy",
        "torch.tensor(np.square(model(x).detach().numpy()).mean())",
        "torch.square(model(x)).mean()",
        f"{HEAD}import numpy as np\nmodel = nn.Linear(8, 1)\n"
        + TRAIN.replace("model(x).square().mean()", "torch.tensor(np.square(model(x).detach().numpy()).mean())"),
    ),
    Fault(
        "no-graph",
        "(chances.sample()",
        "use rsample()",
        "chances.sample()",
        "chances.rsample()",
        f"{HEAD}model = nn.Linear(8, 1)\n"
        + TRAIN.replace("loss = model(x).square().mean()", f"{CHANCES}\n    loss = (chances.sample() - 1).square()"),
    ),
    Fault(
        "raised",
        "labels = torch.",
        "Leave requires_grad out for indices",
        ", requires_grad=True",
        "",
        f"{HEAD}model = nn.Linear(8, 2)\nlabels = torch.tensor([0, 1], requires_grad=True){TRAIN}",
    ),
    Fault(
        "raised",
        "Twice()(",
        "Write @staticmethod above both",
        "Twice()(",
        "Twice.apply(",
        f"{HEAD}class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return 2 * x\n"
        "    @staticmethod\n    def backward(ctx, gradient):\n        return 2 * gradient\nmodel = nn.Linear(8, 1)\n"
        + TRAIN.replace("model(x)", "Twice()(model(x))"),
    ),
]
ELSEWHERE = {
    "loss-input": "test_loss_inputs",
    "no-effect": "test_silent",
    "outdated-result": "test_silent",
    "other-gradient": "test_turns_of_optimizers",
}
"""Checks whose advice is followed in a table of another form, and the module that has it."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ROWS, ids=lambda fault: f"{fault.id}: {fault.advice}")
def test_the_advice_heals(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shows_and_heals(fault, tmp_path)


def test_every_check_has_a_row() -> None:
    rows = {fault.id for fault in _faults()}
    alarming = {one.id for one in checks() if one.severity != "note"}
    assert alarming - rows - ELSEWHERE.keys() == set()
    for id, module in ELSEWHERE.items():
        assert id in Path(tests.checks.__path__[0], f"{module}.py").read_text()


def _modules() -> Iterator[Any]:
    for module in pkgutil.iter_modules(tests.checks.__path__):
        if module.name.startswith("test_"):
            yield importlib.import_module(f"tests.checks.{module.name}")


def _faults() -> Iterator[Fault]:
    for module in _modules():
        for table in vars(module).values():
            rows = table.values() if isinstance(table, dict) else table if isinstance(table, list) else ()
            yield from (row for row in rows if isinstance(row, Fault))
