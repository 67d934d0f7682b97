"""Checks that a project ignores in pyproject.toml, and findings that a baseline knows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gradviz.checks import settings
from gradviz.errors import FormatError
from tests.blocks import ROOT
from tests.cli.conftest import Gradviz

FAULT = ROOT / "samples" / "problems" / "inplace_saved.py"
needs_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(FAULT.read_text(encoding="utf-8"))
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@needs_toml
def test_a_check_that_the_project_ignores_is_not_run(gradviz: Gradviz, folder: Path) -> None:
    assert "stale-saved" in gradviz("check", "train.py", code=1).stdout
    (folder / "pyproject.toml").write_text('[tool.gradviz]\nignore = ["stale-saved"]\n')
    assert "Nothing found" in gradviz("check", "train.py").stdout
    assert settings.ignored(folder / "inner", print) == ("stale-saved",)


@needs_toml
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.gradviz]\nignored = []", "has no ignored"),
        ("[tool.gradviz]\nignore = 3", "lists checks"),
        ("[tool.gradviz", "cannot be read"),
    ],
)
def test_a_wrong_table_is_refused(folder: Path, text: str, words: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(FormatError, match=words):
        settings.ignored(folder, print)


def test_another_projects_table_is_nothing(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.ruff]\nline-length = 88\n")
    assert settings.ignored(folder, print) == ()


def test_a_python_without_a_reader_of_toml_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomllib", None)
    (folder / "pyproject.toml").write_text('[tool.gradviz]\nignore = ["stale-saved"]\n')
    said: list[str] = []
    assert settings.ignored(folder, said.append) == ()
    assert "needs Python 3.11: give --ignore ID" in said[0]
    (folder / "pyproject.toml").write_text("[tool.ruff]\n")
    assert settings.ignored(folder, said.append) == () and len(said) == 1


def test_a_baseline_is_written_once_and_leaves_out_what_it_lists(gradviz: Gradviz, folder: Path) -> None:
    assert "1 finding of known.json left out" in " ".join(
        gradviz("check", "train.py", "--baseline", "known.json").stdout.split()
    )
    text = (folder / "known.json").read_text()
    assert [row["id"] for row in json.loads(text)["findings"]] == ["stale-saved"]

    moved = FAULT.read_text(encoding="utf-8").replace("import torch", "import torch\n\n", 1)
    (folder / "train.py").write_text(moved)  # a line that only moved is known still
    assert json.loads(gradviz("check", "train.py", "--json", "--baseline", "known.json").stdout)["findings"] == []

    data = json.loads(text)
    (folder / "known.json").write_text(json.dumps({**data, "findings": []}))
    assert "stale-saved" in gradviz("check", "train.py", "--baseline", "known.json", code=1).stdout
    assert json.loads((folder / "known.json").read_text())["findings"] == []


@pytest.mark.parametrize("text", ["[]", "{}", "print()", '{"format": "gradviz graph", "findings": []}'])
def test_what_is_no_baseline_is_refused_and_stays(gradviz: Gradviz, folder: Path, text: str) -> None:
    (folder / "known.json").write_text(text)
    said = gradviz("check", "train.py", "--baseline", "known.json", code=2).stderr
    assert "known.json is no baseline" in said and (folder / "known.json").read_text() == text
