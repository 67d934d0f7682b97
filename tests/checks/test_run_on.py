"""Scripts that fail, or turn NaN, long after the first calls: check runs on, finds it, and the advice helps."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from gradviz.cli.main import cli
from gradviz.run import selection
from tests.checks.advice import skip_unread
from tests.checks.test_scripts import check, written
from tests.command_line import CliRunner


class Case(NamedTuple):
    """A script, the finding, a piece of the line that is to blame and of the advice, and what the advice replaces by what."""

    text: str
    id: str
    line: str
    advice: str
    replace: tuple[str, str]


HEAD = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
CASES = {
    "a batch that is empty after filtering": Case(
        """
for batch in range(9):
    x = torch.randn(6, 4)
    keep = x[:, 0] > (9 if batch == 7 else -9)
    loss = model(x)[keep].square().sum() / keep.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "nonfinite",
        "/ keep.sum()",
        "Keep the divisor away from zero",
        ("/ keep.sum()", "/ keep.sum().clamp(min=1)"),
    ),
    "a distance that becomes zero": Case(
        """
for batch in range(9):
    a = model(torch.randn(6, 4))
    b = a.detach() if batch == 6 else torch.randn(6, 1)
    loss = torch.sqrt((a - b).square().sum(-1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "nonfinite",
        "torch.sqrt(",
        "torch.sqrt(x.clamp(min=1e-6))",
        (".sum(-1)", ".sum(-1).clamp(min=1e-6)"),
    ),
    "a validation that backpropagates a second time": Case(
        """
for epoch in range(6):
    loss = model(torch.randn(6, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch == 5:
        loss.backward()
""",
        "freed-graph",
        "        loss.backward()",
        "Compute the output again",
        ("        loss.backward()", "        model(torch.randn(6, 4)).square().mean().backward()"),
    ),
    "a step between a forward and its backward": Case(
        """
for epoch in range(6):
    loss = model(torch.randn(6, 4)).square().mean()
    extra = model(torch.randn(6, 4)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch == 4:
        extra.backward()
""",
        "stale-saved",
        "optimizer.step()",
        "",
        (
            "    optimizer.step()\n    if epoch == 4:\n        extra.backward()",
            "    extra.backward()\n    optimizer.step()",
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_found_and_the_advice_helps(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    skip_unread(case.id)
    script = HEAD + case.text
    found, code = check(written(tmp_path, script))
    (alarm,) = [one for one in found if one["severity"] != "note"]
    assert code == 1 and alarm["id"] == case.id and case.advice in alarm["fix"]
    assert alarm["call"] > 3
    lines = script.split("\n")
    assert case.line in lines[(alarm["line"] or int(alarm["where"].rpartition(":")[2])) - 1]
    assert script.count(case.replace[0]) == 1
    found, code = check(written(tmp_path, script.replace(*case.replace)))
    assert code == 0, found


ENDLESS = (
    HEAD
    + """
import time
while True:
    model(torch.randn(2, 4)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.01)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [ENDLESS, ENDLESS.replace("while True", "for _ in range(4)") + "time.sleep(50)"])
def test_a_script_without_end_is_ended(waiting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "SECONDS", (0.2, 0.2))
    done = CliRunner().invoke(cli, ["check", str(written(tmp_path, waiting))])
    assert done.exit_code == 0 and "until the time limit." in done.stdout.replace("\n", " ")


def test_a_script_that_hardly_runs_gets_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that others keep busy: waiting costs no time of the processor."""
    monkeypatch.setattr(selection, "SECONDS", (0.3, 0.3))
    over = threading.Event()
    waits = selection.Selection(over.set)
    began = time.monotonic()
    waits._wait_for_more()
    assert over.wait(30) and waits.timed_out
    assert time.monotonic() - began >= 0.6


@pytest.mark.slow
def test_continue_has_no_limit_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "SECONDS", (0.2, 0.2))
    late = ENDLESS.replace("while True:", "for step in range(120):").replace(
        "model(torch.randn(2, 4)).mean()", "(model(torch.randn(2, 4)).mean() * (float('nan') if step == 110 else 1))"
    )
    ended, whole = (
        CliRunner().invoke(cli, ["check", *option, str(written(tmp_path, late))]) for option in ((), ("--continue",))
    )
    assert "until the time limit." in ended.stdout.replace("\n", " ") and "[nonfinite]" not in ended.stdout
    assert "[nonfinite]" in whole.stdout and "backward call 111" in whole.stdout


def test_with_steps_it_stops(tmp_path: Path) -> None:
    script = HEAD + CASES["a batch that is empty after filtering"].text
    assert check(written(tmp_path, script), "--steps", "3") == ([], 0)


def test_the_same_script_in_two_folders_has_lines_of_its_own(tmp_path: Path) -> None:
    """Code of two files may be equal, and then Python says that it is one."""
    text = HEAD + "head = torch.nn.Linear(1, 1)\nfor step in range(3):\n    optimizer.zero_grad()\n"
    text += "    head(model(torch.ones(2, 4))).square().mean().backward()\n    optimizer.step()\n"
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        found, _ = check(written(folder, text))
        assert {one["file"] for one in found} == {str(folder / "script.py")}
