"""What cannot be written is said before the script runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import TRAINING, script


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere/net.svg", "there is no folder 'nowhere'"),
        ("folder.svg", "it is a folder"),
        (f"{'x' * 300}.svg", "File name too long"),
        pytest.param(
            "/proc/net.svg", "cannot write '/proc/net.svg'", marks=pytest.mark.skipif(os.name != "posix", reason="")
        ),
        ("closed/net.svg", "no permission to write there"),
    ],
)
@pytest.mark.parametrize("command", ["render", "diff"])
def test_before_the_script_runs(
    gradviz: Gradviz, tmp_path: Path, command: str, path: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = script(tmp_path, "open('ran', 'w')\n" + TRAINING)
    for name in ("folder.svg", "folder.html"):
        (tmp_path / name).mkdir()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if path.startswith("closed") and os.access(closed, os.W_OK):
        pytest.skip("this user may write anywhere")
    two = ["--at", 1, "--at", 2] if command == "diff" else []
    if command == "diff":
        path, said = path.replace(".svg", ".html"), said.replace(".svg", ".html")
    assert said in gradviz(command, source, *two, "-o", path, code=2).stderr
    assert not (tmp_path / "ran").exists()
