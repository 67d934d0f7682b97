"""Which of a script's backward calls is looked at, and what is said of it: scripts that differentiate inside their loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradviz.graph.files import loads
from gradviz.walker.private import missing
from tests.cli.conftest import Gradviz
from tests.cli.scripts import GRAPH, script

PENALTY = """
import argparse
import torch

def penalty(critic, real):
    mixed = real.clone().requires_grad_(True)
    score = critic(mixed)
    gradient = torch.autograd.grad(score.sum(), mixed, create_graph=True)[0]
    return (gradient.norm(dim=1) - 1).pow(2).mean()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    critic = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(critic.parameters(), 0.1)
    for epoch in range(parser.parse_args().epochs):
        critic_loss = critic(torch.ones(4, 2)).mean() + penalty(critic, torch.ones(4, 2))
        critic_loss.backward()
        optimizer.step()
        print("epoch", epoch)

if __name__ == "__main__":
    main()
"""


GRADIENTS_BY_HAND = """
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    loss = model(torch.ones(2, 3)).sum()
    for parameter, gradient in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
        parameter.grad = gradient
    optimizer.step()
    print("step", step)
"""


def test_a_backward_is_preferred_to_the_penalty_before_it(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, PENALTY)
    graph = loads(gradviz(*GRAPH, path, "--", "--epochs", "2").stdout)
    assert graph.title == "script.py: critic_loss.backward() at script.py:18, call 2"
    assert [root.name for root in graph.roots] == ["critic_loss"]
    told = "a call of autograd.grad came before this backward(), the first at script.py:8: --at 1 shows it"
    assert graph.notes == (told, *missing())
    first = loads(gradviz(*GRAPH, path, "--at", "1").stdout)
    assert (first.title, first.notes) == ("script.py: autograd.grad() at script.py:8, call 1", (*missing(),))


def test_without_a_backward_the_script_runs_to_the_end_of_the_step_only(gradviz: Gradviz, tmp_path: Path) -> None:
    result = gradviz(*GRAPH, script(tmp_path, GRADIENTS_BY_HAND))
    graph = loads(result.stdout)
    assert graph.title == "script.py: autograd.grad(loss) at script.py:7, call 1"
    assert "no backward() followed it in the same step" in graph.notes[0]
    assert result.stderr == ""


def test_with_continue_it_runs_on_undisturbed(gradviz: Gradviz, tmp_path: Path) -> None:
    result = gradviz(*GRAPH, "--continue", script(tmp_path, GRADIENTS_BY_HAND))
    assert result.stderr.splitlines() == [f"step {i}" for i in range(4)]
    assert loads(result.stdout).title.endswith("call 1")


def test_a_script_that_only_calls_grad_is_stopped_in_time(
    gradviz: Gradviz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradviz.run.selection.SECONDS", (0.1, 0.1))
    path = script(
        tmp_path,
        """
        import time, torch
        x = torch.ones(3, requires_grad=True)
        y = x.exp().sum()
        saliency = torch.autograd.grad(y, x)
        time.sleep(60)
        print("not reached")
        """,
    )
    result = gradviz(*GRAPH, path)
    assert loads(result.stdout).title.endswith("autograd.grad(y) at script.py:5, call 1")
    assert result.stderr == ""


def test_a_loop_of_grad_is_stopped_by_its_number_of_calls(
    gradviz: Gradviz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradviz.run.selection.CALLS", 5)
    path = script(
        tmp_path,
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        for step in range(9):
            print("step", step)
            torch.autograd.grad(w.exp().sum(), w)
        """,
    )
    result = gradviz(*GRAPH, path)
    assert loads(result.stdout).title.endswith("call 1")
    assert result.stderr.splitlines() == [f"step {i}" for i in range(6)]


def test_what_cannot_be_read_at_grad_is_read_at_backward(gradviz: Gradviz, tmp_path: Path) -> None:
    """`penalty` knows no `epoch`-loss of main's; the path that was asked for exists at the backward() only."""
    path = script(
        tmp_path,
        """
        import torch
        w = torch.ones(2, requires_grad=True)
        g = torch.autograd.grad(w.pow(2).sum(), w, create_graph=True)[0]
        v = torch.ones(2, requires_grad=True)
        loss = (g * v).sum()
        loss.backward()
        """,
    )
    assert json.loads(gradviz("paths", path, "--to", "v", "--json").stdout)["count"] == 1


def test_a_failure_after_grad_is_shown_and_what_was_read_is_written(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(
        tmp_path, "import torch\nx = torch.ones(2, requires_grad=True)\ntorch.autograd.grad(x.exp().sum(), x)\n1 / 0\n"
    )
    result = gradviz("tree", path, code=3)
    assert "autograd.grad() at script.py:3, call 1" in result.stdout
    assert "ZeroDivisionError" in result.stderr


def test_a_call_inside_a_library_names_the_line_of_the_script(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, "def fit(loss):\n    loss.backward()\n", "site-packages/trainer.py")
    path = script(
        tmp_path,
        """
        import sys, torch
        sys.path.append("site-packages")
        import trainer
        w = torch.ones(2, requires_grad=True)
        trainer.fit(w.sum())
        """,
    )
    assert loads(gradviz(*GRAPH, path).stdout).title == "script.py: backward() at script.py:6, call 1"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("out.loss.backward()", "out.loss.backward()"),
        ("out.loss.mul(2).backward()", "backward()"),
        ("named = out.loss; out.loss.backward()", "named.backward()"),
    ],
)
def test_the_call_is_named_as_its_line_writes_it(gradviz: Gradviz, tmp_path: Path, line: str, words: str) -> None:
    made = "import torch, types\nloss = torch.ones(2, requires_grad=True).sum()\n"
    hold = "out = types.SimpleNamespace(loss=loss, losses=[loss])\ndel loss\n"
    script(tmp_path, f"{made}{hold}{line}\n", "net.py")
    assert f"net.py: {words} at net.py:5, call 1" in gradviz("tree", tmp_path / "net.py").stdout
