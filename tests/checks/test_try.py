"""Fixes as data: `edit` says the same as `fix`, and `--try` shows those that heal a script which it runs again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults import DEFAULT, Fault, manifest
from gradviz.checks.edit import Edit, behind, instead
from gradviz.graph import SourceLine
from tests.checks.test_scripts import check, written

HEAD = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
GROWS = f"""{HEAD}
total = 0.0
for step in range(4):
    loss = model(torch.ones(2, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss
open("ran", "a").write("x")
"""
FORGETS = f"""{HEAD}
for step in range(4):
    loss = model(torch.ones(2, 3)).square().mean()
    loss.backward()
    optimizer.step()
"""
FAILS = """
import torch
cell, state = torch.nn.RNNCell(2, 3), torch.zeros(1, 3)
for step in range(3):
    state = cell(torch.ones(1, 2), state)
    state.sum().backward()
"""


def tried(folder: Path, text: str, *options: str) -> str:
    written(folder, text)
    command = [sys.executable, "-m", "gradviz", "check", "script.py", "--try", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "new"),
    [
        (GROWS, "+ total += loss.detach()"),
        (FORGETS, "+ optimizer.zero_grad()"),
        (FAILS, "+ state = state.detach()"),
    ],
    ids=["a total", "a reset", "a state"],
)
def test_a_change_that_heals_is_shown(text: str, new: str, tmp_path: Path) -> None:
    report = tried(tmp_path, text)
    assert new in report and "heals:" in report and "for 1 fix: 1 healed it." in " ".join(report.split())
    assert (tmp_path / "script.py").read_text() == text  # the file is as it was
    if text is GROWS:
        assert (tmp_path / "ran").read_text() == "xx"  # and it ran once more


@pytest.mark.slow
def test_a_change_that_does_not_heal_is_not_shown(tmp_path: Path) -> None:
    """What the script does with the total needs its graph."""
    report = tried(tmp_path, f"{GROWS}assert total.requires_grad\n")
    assert "heals:" not in report and "for 1 fix: 0 healed it." in " ".join(report.split())
    finding = json.loads(tried(tmp_path, f"{GROWS}assert total.requires_grad\n", "--json"))["findings"][0]
    assert finding["edit"]["heals"] is False


def test_where_no_fix_is_an_edit_nothing_runs_again(tmp_path: Path) -> None:
    loop = "for step in range(3):\n    optimizer.zero_grad()\n    model(torch.ones(2, 3)).sum().backward()\n"
    text = f"{HEAD}{loop}"
    assert "Ran nothing again" in " ".join(tried(tmp_path, text).split())


@pytest.mark.slow
def test_a_line_of_another_file_is_changed_too(tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text("def squared(x):\n    return x.detach().square().mean()\n")
    text = FORGETS.replace("import torch", "import torch, losses").replace(
        "model(torch.ones(2, 3)).square().mean()", "SQUARED"
    )
    report = tried(tmp_path, text.replace("SQUARED", "losses.squared(model(torch.ones(2, 3)))"))
    assert "+ return x.square().mean()" not in report  # gradients are not reset, either
    text = text.replace("    loss.backward", "    optimizer.zero_grad()\n    loss.backward")
    report = tried(tmp_path, text.replace("SQUARED", "losses.squared(model(torch.ones(2, 3)))"))
    assert "+ return x.square().mean()" in report


def test_without_it_a_script_runs_once_and_the_edit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, _ = check(written(tmp_path, GROWS))
    assert (tmp_path / "ran").read_text() == "x"
    edit = {"file": "script.py", "line": 13, "old": "total += loss", "new": "total += loss.detach()", "heals": None}
    assert found[0]["edit"] == edit


def test_no_line_is_changed_that_is_not_whole() -> None:
    source = SourceLine("a.py", 1, "f", "x = (y +")
    assert instead(source, "x = 1") is None and instead(None, "x = 1") is None
    assert behind(source._replace(text="for x in y:"), "z = 1") is None
    assert Edit(source._replace(text="x = y"), "x = z").applied("x = 1\n") == "x = 1\n"  # it says something else by now


BROKEN = [fault for fault in manifest(DEFAULT) if fault.broken]
WITHOUT = 14
"""Scripts of tests/faults of which the first finding has no edit: what is to be done there is no change of one line."""


@pytest.mark.slow
def test_every_edit_of_the_faults_heals(tmp_path: Path) -> None:
    """Each is applied as it is told, and the script checked again."""
    without = [fault.broken for fault in BROKEN if not _heals(fault, tmp_path)]
    assert len(without) <= WITHOUT, without


def _heals(fault: Fault, folder: Path) -> bool:
    path = folder / fault.broken
    path.write_text((DEFAULT / fault.broken).read_text())
    found, _ = check(path)
    edit = found[0]["edit"]
    if edit is not None:
        for one in (*edit.get("more", ()), edit):
            source = SourceLine(str(path), one["line"], text=one["old"])
            path.write_text(Edit(source, one["new"]).applied(path.read_text()))
        left, code = check(path)
        assert code == 0, (edit, left)
    return edit is not None
