"""`gradviz tree`: in colour on a terminal, plain elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import TRAINING, environment, script

pytestmark = pytest.mark.slow


def test_long_lines_are_not_broken_when_piped(gradviz: Gradviz, tmp_path: Path) -> None:
    name = "long_name_" * 7
    path = script(tmp_path, f"import torch\n{name} = torch.ones(1, requires_grad=True)\ny = {name} * 2\n")
    assert any(
        name.rstrip("_")[:70] in line and "(1,) float32" in line for line in gradviz("tree", path).stdout.splitlines()
    )


def test_a_pipe_gets_every_row_and_a_limit_is_kept(gradviz: Gradviz, tmp_path: Path) -> None:
    code = "import torch\ny = torch.ones(1, requires_grad=True)\n" + "y = y.exp()\n" * 300
    path = script(tmp_path, code)
    assert gradviz("tree", path).stdout.count("exp") == 300
    assert gradviz("tree", path, "--max-rows", 7).stdout.count("exp") < 7


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_on_a_terminal_unless_no_color(tmp_path: Path, no_color: str, coloured: bool) -> None:
    import pty

    script(tmp_path, TRAINING)
    subprocess.run(
        [sys.executable, "-m", "gradviz", "render", "script.py", "-o", "net.json"],
        cwd=tmp_path, env=environment(), check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    ours, theirs = pty.openpty()
    surroundings = {**environment(), "TERM": "xterm-256color", "NO_COLOR": no_color}
    process = subprocess.Popen(
        [sys.executable, "-m", "gradviz", "tree", "net.json"], cwd=tmp_path, env=surroundings, stdout=theirs
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    assert b"addmm" in said
    assert (b"\x1b[36m" in said or b"\x1b[1;36m" in said) is coloured
