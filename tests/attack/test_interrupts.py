"""Ctrl-C after a random time: exit code 130 without a file, or 0 with a whole one; no traceback of ours, no process left.

Each try is a process forked from this one, with a group of its own. So torch is not imported again: an interrupt in the middle
of its import ends any Python in an abort, now and then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import pytest
import torch  # noqa: F401 -- see above

from gradviz.cli import main as entry
from tests.attack.budget import BOUND, report, tries
from tests.cli.scripts import script

pytestmark = [pytest.mark.long, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and process groups")]

SCRIPT = """
import torch
w = torch.ones(3, requires_grad=True)
x = w
for step in range(400):
    x = torch.tanh(x * w + step)
loss = x.sum()
loss.backward()
"""
COMMANDS = (
    ("render", "script.py", "-o", "graph.svg"),
    ("render", "script.py", "-o", "graph.json"),
    ("render", "script.py", "-o", "graph.svg", "--depth", "all"),
    ("check", "script.py", "--values"),
    ("flow", "script.py"),
)


def _child(folder: Path, arguments: tuple[str, ...]) -> int:
    """The process id of a process that runs the command line in `folder`, with its streams in files."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        for number, name in enumerate((os.devnull, "stdout.txt", "stderr.txt")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(os.dup(i), "r" if i == 0 else "w") for i in range(3))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["gradviz", *arguments]
        Path("ready").touch()
        code = _exit_code()
    except KeyboardInterrupt:  # before or after the command
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exit_code() -> int:
    try:
        entry.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def _wait(child: int, until: float) -> int:
    """The exit code; the process is killed when it takes too long."""
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"still running {BOUND:g} s after the interrupt")


def _group_is_empty(group: int) -> bool:
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        time.sleep(0.02)
    return False


@pytest.mark.slow
def test_interrupts_at_random_times(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    counts: Counter[int] = Counter()
    for seed, random in tries(least=8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        script(folder, SCRIPT)
        arguments = random.choice(COMMANDS)
        child = _child(folder, arguments)
        while not (folder / "ready").exists():
            time.sleep(0.001)
        time.sleep(random.random() ** 2)
        try:
            os.killpg(child, signal.SIGINT)
        except ProcessLookupError:
            pass  # it is over
        code = _wait(child, time.monotonic() + BOUND)
        about = f"seed {seed}: {' '.join(arguments)}: exit code {code}"
        assert code in (0, 130), f"{about}\n{(folder / 'stderr.txt').read_text()}"
        assert "Traceback" not in (folder / "stderr.txt").read_text(), f"{about}\n{(folder / 'stderr.txt').read_text()}"
        assert _group_is_empty(child), f"{about}: a process was left"
        _whole_or_nothing(folder, code, about)
        counts[code] += 1
    report(request, "interrupts in time", counts[130])
    report(request, "interrupts too late", counts[0])


def _whole_or_nothing(folder: Path, code: int, about: str) -> None:
    files = {one.name for one in folder.iterdir()} - {"script.py", "ready", "stdout.txt", "stderr.txt", "__pycache__"}
    assert files <= {"graph.svg", "graph.json"}, f"{about}: {files}"
    for name in files:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.endswith("</svg>\n") if name.endswith("svg") else json.loads(text), f"{about}: a part of {name}"
    if "-o" in about and code == 0:
        assert files, f"{about}: no file"
