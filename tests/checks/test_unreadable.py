"""A part of a call that cannot be read is dropped and said; the script runs on to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz import errors
from gradviz.checks.check import check_target
from gradviz.run.target import parse_target

BUG_TOLD = errors.bug_told
_HOME = "gradviz.checks.collect"
_SCRIPT = """
import torch
model = torch.nn.Linear(3, 1){device}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.ones(2, 3{given})).sum().backward()
    optimizer.step()
open({path!r}, "w").write("ran to its end")
"""


def _fails(*_: object, **__: object) -> None:
    raise LookupError("no such thing")


def _checked(folder: Path, **told: str) -> tuple[dict[str, str], bool]:
    script, end = folder / "train.py", folder / "end"
    script.write_text(_SCRIPT.format(path=str(end), **{"device": "", "given": "", **told}))
    captured = check_target(parse_target(str(script)))
    return dict(captured.result.skipped), end.exists()


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("collector.read_code", "the script's code"),
        ("collector.homes_of", "the modules"),
        ("collector.gradients_left", "gradients"),
        ("ledger.Ledger._look_at", "steps of optimizers"),
        ("watch.RunWatch._look", "losses and graphs"),
    ],
)
def test_one_part_is_dropped(function: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_HOME}.{function}", _fails)
    skipped, ended = _checked(tmp_path)
    assert ended
    assert skipped[part] == "could not be read at call 1: LookupError"


def test_a_call_of_which_nothing_can_be_read_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_HOME}.collector.capture", _fails)
    skipped, ended = _checked(tmp_path)
    assert ended
    assert skipped["later calls"] == "backward call 1 could not be read: LookupError: no such thing"


def test_tensors_without_numbers_are_read_like_others(tmp_path: Path) -> None:
    skipped, ended = _checked(tmp_path, device=".to('meta')", given=", device='meta'")
    assert ended
    assert not [part for part, why in skipped.items() if "could not be read" in why]


def test_a_check_that_fails_costs_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradviz.checks.rules.order.letters", _fails)
    with pytest.raises(LookupError):  # of a test, so that no bug is hidden
        _checked(tmp_path)

    monkeypatch.setattr(errors, "bug_told", BUG_TOLD)
    skipped, ended = _checked(tmp_path)
    assert ended
    assert skipped["no-update"] == "this is a bug in gradviz, please report it (LookupError: no such thing)"
    assert "gradient-not-reset" not in skipped
