"""What is found in a script is found, with the same advice, where a formatter has wrapped its statements."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.checks import test_copies, test_cuts, test_ledger, test_missed, test_silent
from tests.checks.advice import alarms
from tests.rows import every_other

SCRIPTS = {
    name: home[name].script
    for home, names in (
        (test_copies.FAULTS, ["a target that is loaded"]),
        (test_cuts.FAULTS, ["a codebook that only a straight path uses", "an update by hand that loses the leaf"]),
        (
            test_ledger.FAULTS,
            ["an average that is given to a name of the loop", "a hook that lets no negative gradient through"],
        ),
        (
            test_missed.FAULTS,
            ["a step that puts new tensors into a list", "an action that is drawn for a critic", "a leaf that is cast"],
        ),
    )
    for name in names
} | {
    "leaves in a dict": test_silent.HEAD + test_silent.CASES["leaves in a dict that are computed from"].text,
    "a change in place": """
        import torch
        x = torch.randn(3, requires_grad=True)
        saved = torch.exp(x)
        saved.add_(1, alpha=0.5)
        loss = saved.sum()
        loss.backward()
    """,
    "a leaf whose gradient is read": """
        import torch
        weights = torch.randn(3, requires_grad=True) * 0.01
        loss = (weights * 2).sum()
        loss.backward()
        print(weights.grad)
    """,
}
RIGHT = {
    "dropout that asks for the mode": test_silent.net(
        "h = F.dropout(h, 0.5, training=self.training)",
        loop=test_silent.LOOP + "    net.eval()\n    with torch.no_grad(): net(x)\n    net.train()\n",
    ),
    "a model whose statistics are collected": test_silent.net(
        init="self.norm = nn.BatchNorm1d(8)",
        forward="h = self.norm(h)",
        loop=test_silent.LOOP + "with torch.no_grad():\n    net(torch.randn(8, 4) + torch.zeros(8, 4))\n",
    ),
}


def wrapped(script: str) -> str:
    """The same with as many lines as black would ever make of it."""
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if ruff is None:
        pytest.skip("needs ruff")
    command = [ruff, "format", "-", "--isolated", "--line-length", "24"]
    return subprocess.run(command, input=textwrap.dedent(script), capture_output=True, text=True, check=True).stdout


def told(script: str, folder: Path) -> list[tuple[str, str]]:
    found = alarms(script, folder)
    return [(one["id"], re.sub(r"script\.py:\d+", "LINE", one["fix"])) for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(SCRIPTS))
def test_a_wrapped_script_is_read_alike(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = told(SCRIPTS[name], tmp_path)
    assert found and told(wrapped(SCRIPTS[name]), tmp_path) == found


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_wrapped_script_that_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(wrapped(test_silent.HEAD + RIGHT[name]), tmp_path)
