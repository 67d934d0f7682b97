"""`render`, `check` and `diff` write pages."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Gradviz
from tests.cli.scripts import TRAINING, script


def test_three_commands_write_pages(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    gradviz("render", path, "-o", "train.html")
    gradviz("render", path, "--color", "grad", "-o", "measured.html")
    gradviz("check", path, "--html", "report.html", "--fail-on", "never")
    gradviz("render", path, "-o", "train.json")
    gradviz("diff", "train.json", "train.json", "-o", "diff.html")
    for name in ("train.html", "measured.html", "report.html", "diff.html"):
        assert (tmp_path / name).read_text().startswith("<!doctype html>")
    assert (tmp_path / "train.html").stat().st_size < 225_000  # 23 kB of them indent what prettier formatted
