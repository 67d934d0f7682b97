"""`gradviz why`: what is said of one tensor, checked against what backward then does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import script

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.spare = nn.Linear(8, 8)
        self.auxiliary = nn.Linear(4, 8)
        self.teacher = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)
        self.head.bias.requires_grad_(False)

    def forward(self, x):
        self.auxiliary(x)
        with torch.no_grad():
            target = self.teacher(x)
        z = torch.relu(self.encoder(x)).detach()
        return self.head(z) * (z - target).mean()

net = Net()
trainer = torch.optim.SGD(net.head.parameters(), lr=0.1)
for step in range(3):
    out = net(torch.ones(3, 4))
    loss = out.sum()
    loss.backward()
    print(net.head.weight.grad is not None, net.encoder.weight.grad is None)
    trainer.step()
"""

REASONS = {
    "net.encoder.weight": ("line 19 detaches a tensor computed from it", "z = torch.relu(self.encoder(x)).detach()"),
    "net.spare.bias": ("net.spare was never called", "self.spare = nn.Linear(8, 8)"),
    "net.auxiliary.weight": ("line 16 computes with it, and nothing uses the result", "self.auxiliary(x)"),
    "net.teacher.weight": (
        "line 18 computes with it while gradients are off (torch.no_grad(), line 17)",
        "target = self.teacher(x)",
    ),
    "net.head.bias": ("frozen: requires_grad is False, set in line 13", "self.head.bias.requires_grad_(False)"),
}


def test_data_is_not_called_frozen(gradviz: Gradviz, tmp_path: Path) -> None:
    text = "import torch\nx, w = torch.ones(2), torch.ones(2, requires_grad=True)\n(x * w).sum().backward()\n"
    assert (
        json.loads(gradviz("why", script(tmp_path, text), "x", "--json").stdout)["reason"] == "requires_grad is False"
    )


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_and_its_line(gradviz: Gradviz, tmp_path: Path, name: str) -> None:
    told = json.loads(gradviz("why", script(tmp_path, NET), name, "--json").stdout)
    words, text = REASONS[name]
    assert told["reason"] == words
    assert (told["cause"] and told["cause"]["text"]) == text
    assert told["step"] is None and not told["path"]
    assert told["grad"] == "empty before this call, and stays so: no gradient reaches it"


def test_the_step_that_fills_a_gradient(gradviz: Gradviz, tmp_path: Path) -> None:
    told = [
        json.loads(gradviz("why", script(tmp_path, NET), "net.head.weight.grad", "--json", "--at", at).stdout)
        for at in (1, 2)
    ]
    assert told[0]["grad"] == "empty before this call, filled at step 5 of 5"
    assert told[1]["grad"] == "filled before this call, added to at step 5 of 5"  # nothing clears it
    assert [step["name"] for step in told[0]["path"]] == ["sum", "out", "head", "t", "net.head.weight"]
    assert told[0]["module"] == "net.head (Linear)"
    assert told[0]["optimizers"] == ["trainer (SGD), parameter group 0, lr 0.1"]


@pytest.mark.parametrize(
    ("text", "name", "grad"),
    [
        (
            "y = w * 2\nloss = y.sum()\nloss.backward()",
            "y",
            "y.retain_grad() before backward() would fill it at step 2",
        ),
        ("loss = (w * 2).sum()\ntorch.autograd.grad(loss, w)", "w", "torch.autograd.grad() returns gradients"),
        ("loss = (w * 2).sum()", "w", "empty now, filled at step 3 of 3"),
    ],
)
def test_what_grad_holds_is_said_as_it_is(gradviz: Gradviz, tmp_path: Path, text: str, name: str, grad: str) -> None:
    path = script(tmp_path, f"import torch\nw = torch.ones(3, requires_grad=True)\n{text}\n")
    assert grad in json.loads(gradviz("why", path, name, "--json").stdout)["grad"]


def test_a_loss_without_a_graph_has_a_reason_too(gradviz: Gradviz, tmp_path: Path) -> None:
    text = "import torch\nw = torch.ones(3, requires_grad=True)\nloss = (w * 2).detach().sum()\nloss.backward()\n"
    out = gradviz("why", script(tmp_path, text), "w").stdout
    assert "line 3 detaches a tensor computed from it" in out and "none from loss" in out


CUT = """
import torch

w = torch.ones(3, requires_grad=True)
first = w * 2
second = first.exp()
cut = second.detach()
loss = (cut * w).sum()
loss.backward()
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("first", "line 7 detaches a tensor computed from it"),
        ("second", "line 7 detaches it"),
        ("cut", "line 7 detaches a tensor to compute it"),
    ],
)
def test_what_an_op_computed_has_the_line_of_its_cut(gradviz: Gradviz, tmp_path: Path, name: str, words: str) -> None:
    told = json.loads(gradviz("why", script(tmp_path, CUT), name, "--json").stdout)
    assert told["reason"] == words and told["cause"]["text"] == "cut = second.detach()"
    assert told["step"] is None and told["is_leaf"] == (name == "cut")


def test_wrong_names_are_explained(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, NET)
    assert "Name a parameter, such as net.encoder.weight." in gradviz("why", path, "net", code=2).stderr
    assert "has no variable 'nett'" in gradviz("why", path, "nett.head", code=2).stderr
    assert "saved graph" in gradviz("why", "graph.json", "w", code=2).stderr


def test_a_module_of_python_stands_for_the_target(
    gradviz: Gradviz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, "import torch\nw = torch.ones(2, requires_grad=True)\n(w * 2).sum().backward()\n", "trained.py")
    monkeypatch.chdir(tmp_path)
    assert gradviz("why", "-m", "trained", "w").stdout == gradviz("why", "trained.py", "w").stdout


def test_several_names_are_answered_in_their_order(gradviz: Gradviz, tmp_path: Path) -> None:
    path, names = script(tmp_path, NET), ("net.head.bias", "net.spare.bias")
    alone = [gradviz("why", path, name).stdout.partition("\n\n")[0] for name in names]
    shown = gradviz("why", path, *names).stdout
    assert all(title in shown for title in alone) and shown.index(alone[0]) < shown.index(alone[1])
    both = json.loads(gradviz("why", path, *names, "--json").stdout)
    assert [(one["name"], one["reason"]) for one in both] == [(name, REASONS[name][0]) for name in names]
