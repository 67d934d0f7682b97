"""What somebody meets first: the demo, a page that opens, completion, and what is said without torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradviz.cli.main import COMMANDS
from tests.cli.conftest import Gradviz
from tests.cli.scripts import environment, script

FAULTY = """
import torch
net = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 1), "b": torch.nn.Linear(2, 1)})
net["a"](torch.ones(1, 2)).sum().backward()
"""


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a browser was asked to open, one address a line."""
    addresses = tmp_path.parent / f"{tmp_path.name}.opened"
    browser = tmp_path.parent / f"{tmp_path.name}.browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >> "{addresses}"\n')
    browser.chmod(0o755)
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setenv("BROWSER", str(browser))
    return addresses


def test_the_demo_writes_a_page_that_shows_its_faults(gradviz: Gradviz, tmp_path: Path) -> None:
    said = gradviz("demo").stdout
    assert sorted(os.listdir(tmp_path)) == ["gradviz_demo.html", "gradviz_demo.py"]
    (number,) = re.findall(r"Line (\d+) cuts it off", said)
    text = (tmp_path / "gradviz_demo.py").read_text()
    assert ".detach()" in text.splitlines()[int(number) - 1]
    assert max(map(len, said.splitlines())) <= 100
    for line in re.findall(r"^  gradviz (.*gradviz_demo.*)$", said, re.MULTILINE):  # what it says to run does run
        assert "detaches" in gradviz(*line.split(), code=1 if line.startswith("check") else 0).output


def test_the_demo_leaves_a_script_that_was_changed(gradviz: Gradviz, tmp_path: Path) -> None:
    gradviz("demo")
    gradviz("demo")  # the same again
    (tmp_path / "gradviz_demo.py").write_text("mine = 1\n")
    assert "has been changed" in gradviz("demo", code=2).output
    assert (tmp_path / "gradviz_demo.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize(
    ("words", "file", "code"), [(("render", "-o", "net.svg"), "net.svg", 0), (("check",), "train.html", 1)]
)
def test_open_opens_what_was_written(
    gradviz: Gradviz, tmp_path: Path, opened: Path, words: tuple[str, ...], file: str, code: int
) -> None:
    gradviz(*words, "--open", script(tmp_path, FAULTY, "train.py"), code=code)
    assert opened.read_text() == f"{(tmp_path / file).as_uri()}\n"


def test_nothing_is_opened_that_was_not_written(gradviz: Gradviz, tmp_path: Path, opened: Path) -> None:
    path = script(tmp_path, "1 / 0", "train.py")
    (tmp_path / "train.svg").write_text("")
    gradviz("render", "--open", path, code=3)
    for words in (("render", "-o", "-", path), ("diff", path, path)):
        assert "--open shows a file" in gradviz(*words, "--open", code=2).output
    assert not opened.exists()


def complete(*words: str) -> list[str]:
    told = {"_GRADVIZ_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    program = "import sys; sys.argv = ['gradviz']; from gradviz.__main__ import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program], env={**environment(), **told}, capture_output=True, text=True, check=False
    )
    return result.stdout.splitlines()


@pytest.mark.slow
def test_the_shell_completes_commands_options_and_files() -> None:
    assert set(complete("gradviz", "")) == {f"plain,{name}" for name in COMMANDS}
    assert complete("gradviz", "render", "--forma") == ["plain,--format"]
    assert complete("gradviz", "render", "tra") == ["file,tra"]
    assert complete("gradviz", "check", "--only", "stale") == ["plain,stale-saved"]


@pytest.mark.slow
@pytest.mark.fresh
@pytest.mark.parametrize(
    "words",
    [("demo",), ("why", "train.py", "x"), ("diff", "train.py", "train.py"), ("paths", "train.py", "--to", "x")]
    + [(name, "train.py") for name in ("check", "render", "tensors")],
)
def test_without_torch_one_line_says_where_to_get_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    script(tmp_path, "import torch", "train.py")
    program = "import sys; sys.modules['torch'] = None; from gradviz.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert ended.stderr.startswith(f"Error: torch is not installed for {sys.executable}. Install it there")
