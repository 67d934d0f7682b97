"""`render --values`: the numbers of small tensors, saved, or computed of those."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradviz.graph.files import load
from tests.cli.conftest import Gradviz
from tests.cli.scripts import script

LINES = """
import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
first = w - 1
second = first + first
second.add_(1)
loss = second.sum() - 3
loss.backward()
"""


def test_what_no_op_saved_is_computed_of_what_is_known(gradviz: Gradviz, tmp_path: Path) -> None:
    """Nobody kept the 1 and the 3, but their lines say them."""
    lines = LINES.replace("second.add_(1)", "second = second * w")
    gradviz("render", script(tmp_path, lines), "--values", "-o", tmp_path / "graph.json")
    graph = load(tmp_path / "graph.json")
    found = {graph.nodes[step.node].op: step.value for step in graph.backward}
    assert found == {
        "SubBackward0": (0.0, 1.0),
        "SumBackward0": (4.0,),
        "MulBackward0": (0.0, 4.0),
        "AddBackward0": (0.0, 2.0),
        "AccumulateGrad": (1.0, 2.0),
    }


def test_a_chain_of_scalars_is_computed_as_torch_does(gradviz: Gradviz, tmp_path: Path) -> None:
    names = "x", "y", "a", "b", "c", "loss"
    text = (
        "import torch\nx, y = (torch.tensor(number, requires_grad=True) for number in (2.0, -3.0))\n"
        "a = torch.sub(x, y, alpha=2)\nb = a + x * y\nc = -b / y\nloss = torch.tanh(c)\n"
        f"print({', '.join(f'{name}.item()' for name in names)})\nloss.backward()\n"
    )
    printed = gradviz("render", script(tmp_path, text), "--values", "-o", tmp_path / "graph.json")
    graph = load(tmp_path / "graph.json")
    found = {step.value[0] for step in graph.backward if step.value}
    numbers = (printed.stdout + printed.stderr).split()
    assert {float(f"{float(number):.6g}") for number in numbers[: len(names)]} <= found


def test_a_picture_shows_single_numbers(gradviz: Gradviz, tmp_path: Path) -> None:
    text = "import torch\nw = torch.tensor(2.0, requires_grad=True)\nloss = w * w * 3\nloss.backward()\n"
    out = gradviz("render", script(tmp_path, text), "--values", "--format", "dot", "-o", "-").stdout
    assert "= 2, grad 12" in out and "= 12, grad 1" in out
    assert out.count('label="\u00d7 2"') == 2 and out.count('label="\u00d7 3"') == 1


def test_a_first_lesson_shows_its_numbers_unasked(gradviz: Gradviz, tmp_path: Path) -> None:
    """w = 1, grad 5; the constant 1 in the title; factors on the edges: as on a blackboard."""
    lines = """
import torch

x = torch.tensor(2.0, requires_grad=True)
w = torch.tensor(1.0, requires_grad=True)
y = (x + w) * (w + 1)
y.backward()
"""
    gradviz("render", script(tmp_path, lines), "-o", tmp_path / "lesson.svg")
    words = re.findall(r">([^<>\n]+)</text>", (tmp_path / "lesson.svg").read_text())
    assert {"= 1, grad 5", "+ 1", "= 6, grad 1", "\u00d7 3"} <= set(words)
    assert not any("not drawn" in line for line in words)


NOT_A_LESSON = {
    "a hook unpacks what is saved": """
unpacked = []
def unpack(tensor):
    unpacked.append(1)
    return tensor
with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
    y = (x * x).sin()
y.backward()
print("END", len(unpacked))
""",
    "a hook changes the gradient": """
h = x * 3
h.register_hook(lambda grad: grad * 2)
y = h.exp()
y.backward()
print("END", round(float(x.grad)))
""",
    "a leaf has a hook": """
x.register_hook(lambda grad: grad * 2)
y = x.exp() * 3
y.backward()
print("END", round(float(x.grad)))
""",
    "a custom Function": """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad):
        print("END", "backward")
        return 2 * ctx.saved_tensors[0] * grad
y = Square.apply(x) + 1
y.backward()
""",
    "a tensor that was modified": """
h = x.exp()
h.add_(1)
y = h * h
h.add_(1)
try:
    y.backward()
except RuntimeError:
    print("END", "refused")
""",
    "a tensor without numbers": """
x = torch.tensor(2.0, requires_grad=True, device="meta")
y = (x * 3).exp()
y.backward()
print("END", x.grad.device)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_A_LESSON)
def test_where_numbers_would_disturb_or_be_others_none_are_shown(name: str, gradviz: Gradviz, tmp_path: Path) -> None:
    """The picture is made all the same, and the script prints what it prints alone."""
    lines = f"import torch\n\nx = torch.tensor(2.0, requires_grad=True)\n{NOT_A_LESSON[name]}"
    file = script(tmp_path, lines)
    alone = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True).stdout
    shown = gradviz("render", file, "--continue", "-o", tmp_path / "graph.svg")
    assert [line for line in shown.stdout.splitlines() if "END" in line] == alone.splitlines()
    words = re.findall(r">([^<>\n]+)</text>", (tmp_path / "graph.svg").read_text())
    assert not [word for word in words if "grad " in word]
