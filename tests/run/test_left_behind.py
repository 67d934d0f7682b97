"""What a script leaves replaced does not reach what gradviz does afterwards, and its own handlers find it as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

STEP = "import torch\nw = torch.ones(2, requires_grad=True)\n(w * 2).sum().backward()\n"


def told(folder: Path, code: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(code)
    words = [sys.executable, "-m", "gradviz", *command, "train.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100)


def test_built_in_functions_are_put_back(tmp_path: Path) -> None:
    code = (
        STEP + "import builtins\ndef mine(*_): raise RuntimeError('not for you')\nbuiltins.sum = builtins.open = mine\n"
    )
    done = told(tmp_path, code, "render", "--continue", "-o", "net.svg")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "net.svg").read_text()


def test_a_handler_at_exit_finds_the_scripts_own_hook(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\nimport torch\ndef hook(*_): pass\nsys.excepthook = hook\n"
        "atexit.register(lambda: print('mine', sys.excepthook is hook))\n" + STEP
    )
    assert "mine True" in told(tmp_path, code, "render", "--continue").stdout
