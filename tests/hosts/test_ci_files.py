"""`action.yml` and `.pre-commit-hooks.yaml`: what they run finds a fault, and passes a correct script."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blocks import ROOT
from tests.rows import every_other

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.slow
SCRIPTS = [("samples/problems/inplace_saved.py", 1), ("samples/mlp_training.py", 0)]


def run(command: list[str], tmp_path: Path, **variables: str) -> int:
    """The exit code, with `python` and `gradviz` those of these tests."""
    for name, words in (("python", '"$@"'), ("gradviz", '-m gradviz "$@"')):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
        tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    surroundings = {**os.environ, **variables, "PATH": path, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, check=False).returncode


@pytest.mark.skipif(os.name != "posix", reason="the action runs bash")
@pytest.mark.parametrize(("script", "code"), every_other(SCRIPTS))
def test_the_action(tmp_path: Path, script: str, code: int) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    defaults = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
    values = {**defaults, "target": script}
    step = action["runs"]["steps"][-1]
    variables = {name: values[text.split(".")[1].strip(" }")] for name, text in step["env"].items()}
    assert run(["bash", "-e", "-c", step["run"]], tmp_path, **variables) == code


@pytest.mark.skipif(os.name != "posix", reason="the stand-ins are shell scripts")
@pytest.mark.parametrize(("script", "code"), [SCRIPTS[0], pytest.param(*SCRIPTS[1], marks=pytest.mark.long)])
def test_the_hook(tmp_path: Path, script: str, code: int) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["pass_filenames"] is False
    assert run([*shlex.split(hook["entry"]), script], tmp_path) == code
