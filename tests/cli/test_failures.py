"""How a command ends when something around it fails: standard output, torch, Ctrl-C at the worst moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import TRAINING, environment, script

pytestmark = pytest.mark.slow

FULL = Path("/dev/full")
LOST = "raise OSError('libtorch_cpu.so: cannot open')\n"


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("render", "script.py", "-o", "net.json"), "net.json was written, but standard output accepts no more data"),
        (("--help",), "standard output accepts no more data: No space left on device"),
        (("check", "--list"), "standard output accepts no more data"),
    ],
)
def test_standard_output_is_full(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    script(tmp_path, TRAINING)
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gradviz", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
    assert done.returncode == 2
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
    assert (tmp_path / "net.json").exists() == (arguments[0] == "render")


@pytest.mark.fresh
@pytest.mark.parametrize("command", ["tree", "check"])
def test_torch_cannot_be_imported(tmp_path: Path, command: str) -> None:
    """By gradviz itself. Where the script imports it, it is the script's own traceback."""
    script(tmp_path, "x = 3\n")
    script(tmp_path, LOST, "elsewhere/torch.py")
    ours = environment()
    ours["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'elsewhere'}"
    done = subprocess.run(
        [sys.executable, "-m", "gradviz", command, "script.py"], capture_output=True, text=True, env=ours
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: torch cannot be imported: OSError: libtorch_cpu.so: cannot open.")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.fresh
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("seconds", [0.03, 0.08, 0.15])
def test_ctrl_c_while_it_starts(tmp_path: Path, seconds: float) -> None:
    """Counted from where the command begins: before, Python itself starts."""
    start = (
        "import signal, sys\n"
        "from gradviz.__main__ import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"signal.setitimer(signal.ITIMER_REAL, {seconds})\n"
        "signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))\n"
        "sys.argv = ['gradviz', 'render', 'script.py']\n"
        "main()\n"
    )
    script(tmp_path, "import time\nwhile True: time.sleep(1)\n")
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, env=environment(), timeout=60)
    assert (done.returncode, done.stderr) == (130, "Interrupted; nothing was written.\n")


def test_ctrl_c_when_the_file_is_there(gradviz: Gradviz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def echo(*_: object, **__: object) -> None:
        monkeypatch.setattr(click, "echo", before)
        raise KeyboardInterrupt

    before = click.echo
    monkeypatch.setattr(click, "echo", echo)
    result = gradviz("render", script(tmp_path, TRAINING), "-o", "net.json", code=130)
    assert result.stderr == "Interrupted; net.json was written before.\n"
    assert (tmp_path / "net.json").exists()


def test_ctrl_c_leaves_an_old_file_and_says_so(gradviz: Gradviz, tmp_path: Path) -> None:
    old = '{"format":"gradviz-graph", old'
    (tmp_path / "net.json").write_text(old)
    result = gradviz("render", script(tmp_path, "raise KeyboardInterrupt\n"), "-o", "net.json", code=130)
    assert result.stderr == "Interrupted; nothing was written.\n"
    assert (tmp_path / "net.json").read_text() == old


@pytest.mark.skipif(os.name != "posix", reason="ends by a signal only there")
def test_ctrl_c_in_code_made_from_text_ends_with_a_code(tmp_path: Path) -> None:
    """CPython remembers it, and would end `python -m` by the signal whatever it asks for."""
    interrupted = "import gradviz.cli.main as cli\ncli.main = lambda: exec('raise KeyboardInterrupt')\n"
    script(tmp_path, f"{interrupted}from gradviz.__main__ import main\nmain()\n", "interrupted.py")
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stderr) == (130, "Interrupted; nothing was written.\n")


WITHOUT_LINE = """
import torch
net = torch.nn.Linear(3, 1)
def loss_of(x):
    return net(x).sum() + undefined
loss_of.__code__ = loss_of.__code__.replace(co_linetable=b"")
loss_of(torch.ones(2, 3)).backward()
"""


@pytest.mark.parametrize("command", ["check", "render"])
def test_code_that_was_made_without_lines_fails(tmp_path: Path, command: str) -> None:
    """As a package does that writes its functions as a syntax tree."""
    script(tmp_path, WITHOUT_LINE)
    done = subprocess.run(
        [sys.executable, "-m", "gradviz", command, "script.py"], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 3 and done.stderr.endswith("NameError: name 'undefined' is not defined\n")
    assert "gradviz/run/" not in done.stderr
