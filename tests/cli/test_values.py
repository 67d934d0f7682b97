"""`render --values`: the numbers of small tensors, noted while the script runs."""

from __future__ import annotations

from pathlib import Path

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


def test_what_no_op_saved_is_noted_as_it_is_computed(gradviz: Gradviz, tmp_path: Path) -> None:
    gradviz("render", script(tmp_path, LINES), "--values", "-o", tmp_path / "graph.json")
    graph = load(tmp_path / "graph.json")
    found = {graph.nodes[step.node].sequence: step.value for step in graph.backward}
    assert list(found.values()) == [(1.0,), (4.0,), (1.0, 3.0), (0.0, 2.0), (0.0, 1.0), (1.0, 2.0)]


def test_other_threads_count_for_themselves(gradviz: Gradviz, tmp_path: Path) -> None:
    """A node of a thread has a number that one of another thread has, too."""
    begin = "thread = Thread(target=lambda: found.append(w * 7))"
    work = f"from threading import Thread\nfound = []\n{begin}\nthread.start()\nthread.join()"
    text = LINES.replace("first = w - 1", f"{work}\nfirst = found[0] - 1")
    gradviz("render", script(tmp_path, text), "--values", "-o", tmp_path / "graph.json")
    graph = load(tmp_path / "graph.json")
    assert {graph.nodes[step.node].op: step.value for step in graph.backward}["SubBackward0"] == ()


def test_a_picture_shows_single_numbers(gradviz: Gradviz, tmp_path: Path) -> None:
    text = "import torch\nw = torch.tensor(2.0, requires_grad=True)\nloss = w * w * 3\nloss.backward()\n"
    out = gradviz("render", script(tmp_path, text), "--values", "--format", "dot", "-o", "-").stdout
    assert "= 2, grad 12" in out and "= 12, grad 1" in out
    assert out.count('label="\u00d7 2"') == 2 and out.count('label="\u00d7 3"') == 1
