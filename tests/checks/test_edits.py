"""Fixes as data: `edit` says the same as `fix`, and heals a script that it is applied to."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults import DEFAULT, Fault, manifest
from gradviz.checks.edit import behind, instead
from gradviz.graph import SourceLine
from tests.checks.advice import applied
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


def test_a_script_runs_once_and_the_edit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, _ = check(written(tmp_path, GROWS))
    assert (tmp_path / "ran").read_text() == "x"
    assert found[0]["line"] == 13


def test_no_line_is_changed_that_is_not_whole() -> None:
    source = SourceLine("a.py", 1, "f", "x = (y +")
    assert instead(source, "x = 1") is None and instead(None, "x = 1") is None
    assert behind(source._replace(text="for x in y:"), "z = 1") is None


BROKEN = [fault for fault in manifest(DEFAULT) if fault.broken]
WITHOUT = 15
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
        path.write_text(applied(edit, path.read_text()))
        left, code = check(path)
        assert code == 0, (edit, left)
    return edit is not None
