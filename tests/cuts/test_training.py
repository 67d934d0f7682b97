"""What trains what, in one table, and the line that froze a part."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from gradviz.cuts.training import TrainedPart, Training
from tests.cli.conftest import Gradviz, gradviz as run_gradviz
from tests.cli.scripts import script

gradviz_command = run_gradviz
TEXT = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.gate, self.head = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 1)
    def forward(self, x):
        h = self.body(x)
        return self.head(h) * self.gate(h).argmax(1, keepdim=True)
net, free = Net(), torch.ones(1, requires_grad=True)
for weight in net.body.parameters():
    weight.requires_grad = False
opt = torch.optim.SGD([*net.gate.parameters(), *net.head.parameters()], lr=0.1)
loss = (net(torch.ones(2, 4)) * free).sum()
loss.backward()
"""


def test_each_part_has_its_loss_and_its_optimizer(gradviz_command: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TEXT)
    parts = json.loads(gradviz_command("why", path, "--json").stdout)["parts"]
    found = {
        one["names"][0]: (one["outputs"], one["optimizers"], one["cause"] and one["cause"]["line"]) for one in parts
    }
    assert found == {
        "net.body.weight": ([], [], 13),
        "net.gate.weight": ([], ["opt"], 10),
        "net.head.weight": (["loss"], ["opt"], None),
        "free": (["loss"], [], None),
    }
    table = gradviz_command("why", path).stdout
    assert "net.body.*" in table and "requires_grad is False, set in line 13" in table
    assert "into integers or booleans" in table


def test_a_copy_in_place_is_followed(gradviz_command: Gradviz, tmp_path: Path) -> None:
    text = """
        import torch
        net, unused = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
        mean = torch.zeros(3)
        mean.copy_(unused(torch.ones(1, 3)).detach()[0].expand(3))
        loss = net(torch.ones(2, 3) - mean).sum()
        loss.backward()
    """
    table = gradviz_command("why", script(tmp_path, textwrap.dedent(text))).stdout
    assert "line 5 detaches it" in table


def test_it_prints_as_a_table() -> None:
    body = TrainedPart(("net.weight", "net.bias"), ("loss",), ("opt",), "", None)
    free = TrainedPart(("free",), (), (), "no path leads to it from the loss", None)
    header, *rows = str(Training(("loss",), (body, free))).splitlines()
    assert header.split() == ["parameters", "gradient", "from", "updated", "by", "why", "none"]
    assert [row.split()[:3] for row in rows] == [["net.*", "loss", "opt"], ["free", "-", "-"]]


TURNS = """
import torch
from torch import nn
made, judge = nn.Linear(4, 2), nn.Linear(2, 1)
made_opt, judge_opt = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (made, judge))

def judges(real):
    fake = made(torch.randn(8, 4)).detach()
    judged = judge(fake).mean() - judge(real).mean()
    judge_opt.zero_grad()
    judged.backward()
    judge_opt.step()

def fools():
    fooled = -judge(made(torch.randn(8, 4))).mean()
    made_opt.zero_grad()
    fooled.backward()
    made_opt.step()

for turn in range(9):
    for _ in range(3):
        judges(torch.randn(8, 2))
    fools()
print("the end")
"""


def reached(gradviz_command: Gradviz, path: Path) -> dict[str, tuple[list[str], str]]:
    parts = json.loads(gradviz_command("why", path, "--json").stdout)["parts"]
    return {one["names"][0]: (one["outputs"], one["reason"]) for one in parts}


def test_every_loss_of_a_turn_is_read_and_no_more(gradviz_command: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TURNS)
    assert reached(gradviz_command, path) == {
        "made.weight": (["fooled"], ""),
        "judge.weight": (["judged", "fooled"], ""),
    }
    named = gradviz_command("why", path, "made.weight")
    assert "from fooled" in named.stdout and "never called" not in named.stdout
    assert "the end" not in named.stderr


def test_what_no_loss_of_a_turn_reaches_has_its_line(gradviz_command: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TURNS.replace("judge(made(torch.randn(8, 4)))", "judge(made(torch.randn(8, 4)).data)"))
    outputs, reason = reached(gradviz_command, path)["made.weight"]
    assert outputs == [] and reason.startswith("judged: line 8 ") and "; fooled: line 15 " in reason
    assert "script.py:15" in gradviz_command("why", path, "made.weight").stdout


def test_a_call_that_fails_leaves_the_answer_of_the_first(gradviz_command: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TURNS.replace("    fooled.backward()", "    raise ValueError(fooled)"))
    assert reached(gradviz_command, path)["judge.weight"] == (["judged"], "")


def test_a_gradient_of_zero_is_no_gradient_either(gradviz_command: Gradviz, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        TURNS.replace("fooled = -judge(made(", "fooled = -judge(torch.sign(made(").replace(
            "4))).mean()\n    made_opt", "4)))).mean()\n    made_opt"
        ),
    )
    outputs, reason = reached(gradviz_command, path)["made.weight"]
    assert outputs == ["fooled"] and "exactly 0: the derivative of torch.sign is 0 everywhere" in reason
    assert "script.py:15" in gradviz_command("why", path, "made.weight").stdout
