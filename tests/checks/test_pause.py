"""A long run rests from being watched, and what happens then is told as if it had been watched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import gradviz
from gradviz.checks.collect import pause
from gradviz.recording.session import running
from tests.checks.test_run_on import CASES, HEAD
from tests.checks.test_scripts import check, written


def later(text: str, steps: int) -> str:
    """The script with its fault so many steps later."""
    text = re.sub(r"range\((\d)\)", lambda match: f"range({int(match[1]) + steps})", text)
    return re.sub(r"== (\d)", lambda match: f"== {int(match[1]) + steps}", text)


@pytest.mark.parametrize("name", [name for name in CASES if "step between" not in name])
def test_a_fault_while_it_rests_has_its_line(name: str, tmp_path: Path) -> None:
    script, late = HEAD + CASES[name].text, later(HEAD + CASES[name].text, 200)
    assert script != late
    (soon,), _ = check(written(tmp_path, script))
    (alarm,), _ = check(written(tmp_path, late))
    assert alarm["call"] == soon["call"] + 200
    assert [alarm[key] for key in ("id", "names", "fix", "line")] == [
        soon[key] for key in ("id", "names", "fix", "line")
    ]


def test_other_operations_have_no_line_of_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recalled = []
    repeat = pause.Pause.recall

    def spy(self: pause.Pause, *arguments: object) -> None:
        before = running().event_log().lines.seen
        repeat(self, *arguments)
        recalled.append(running().event_log().lines.seen > before)

    monkeypatch.setattr(pause.Pause, "recall", spy)
    script = """
for step in range(300):
    x = model(torch.randn(6, 4))
    if step == 210:
        x = x.exp().cos()
    loss = x.mean() * (float("nan") if step == 210 else 1.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    (alarm,), _ = check(written(tmp_path, HEAD + script))
    assert alarm["id"] == "nonfinite" and recalled == [False]


def test_what_begins_is_watched_again(tmp_path: Path) -> None:
    """Passes in eval() mode that a person meant to train with, long after the first hundred steps."""
    script = """
for step in range(220):
    optimizer.zero_grad()
    model(torch.randn(6, 4)).mean().backward()
    optimizer.step()
    if step % 110 == 105:
        model.eval()
        total = sum(model(torch.randn(6, 4)).mean() for _ in range(5)).item()
        model.train()
"""
    found, _ = check(written(tmp_path, HEAD + script))
    assert [one["id"] for one in found] == ["unused-graph"]


def test_nothing_is_switched_while_it_rests(tmp_path: Path) -> None:
    script = """
import torch.nn.modules.module as hooks
detach = vars(torch.Tensor).get("detach")
for step in range(190):
    optimizer.zero_grad()
    model(torch.randn(6, 4)).mean().backward()
    optimizer.step()
print(torch._C._is_anomaly_enabled() if hasattr(torch._C, "_is_anomaly_enabled") else torch.is_anomaly_enabled())
open("state.txt", "w").write(repr((len(hooks._global_forward_hooks), vars(torch.Tensor).get("detach") is not detach)))
"""
    path = written(tmp_path, HEAD + script.replace("state.txt", str(tmp_path / "state.txt")))
    check(path)
    assert (tmp_path / "state.txt").read_text() == "(0, False)"


def test_a_recording_of_the_users_is_whole() -> None:
    with gradviz.record():
        session = running()
        assert session is not None
        session.pause()
        net = torch.nn.Linear(2, 1)
        unseen = net(torch.ones(1, 2)).sum()
        with gradviz.record() as mine:
            seen = net(torch.ones(1, 2)).sum()
        session.pause()
        assert {node.scope for node in mine.graph(seen).nodes} == {0, None}
        assert not mine.graph(unseen).scopes
