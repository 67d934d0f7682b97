"""The worked examples of docs/adding-a*.md: applied to a copy of the package, they do what their pages say."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.blocks import ROOT

pytestmark = pytest.mark.slow
MAKER = runpy.run_path(str(ROOT / "docs" / "worked_examples.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with every example in it."""
    folder: Path = tmp_path_factory.mktemp("copy")
    MAKER["applied"](folder)
    return folder


@pytest.fixture(scope="module")
def outcome(folder: Path) -> Any:
    return MAKER["run"](folder)


@pytest.mark.long
def test_their_tests_pass(outcome: Any) -> None:
    assert outcome.code == 0, outcome.output


@pytest.mark.parametrize("page", MAKER["PAGES"], ids=lambda page: page.stem)
def test_their_commands_print_what_the_page_shows(outcome: Any, page: Path) -> None:
    shown = page.read_text(encoding="utf-8")
    assert MAKER["EDIT"].search(shown) and "$ gradviz " in shown
    assert outcome.pages[page.name] == shown, "run: python docs/worked_examples.py"


def test_they_are_in_the_style_of_the_house(folder: Path) -> None:
    ours = ["--config", str(ROOT / "pyproject.toml"), "--config", 'lint.isort.known-first-party = ["gradviz", "tests"]']
    for command in (["check"], ["format", "--check"]):
        tool = [sys.executable, "-m", "ruff", *command, *ours]
        done = subprocess.run([*tool, "gradviz", "tests"], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
