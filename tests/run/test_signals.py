"""Signal handlers of a script run as often as without gradviz, and what they raise is seen; and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.running import run_target

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")

_TRAIN = """
import signal, time, torch

class Late(Exception):
    pass

raised = 0
def handler(number, frame):
    global raised
    raised += 1
    {what}

signal.signal(signal.SIGALRM, handler)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, lost = torch.ones(2, 3), 0

def step():
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()

step()
for turn in range(60):
    seen, end = raised, time.time() + 2
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.00003 * (turn % 37))
        while time.time() < end and seen == raised:
            step()
        lost += seen == raised
    except Late:
        torch.set_grad_enabled(True)
print("raised", raised, "lost", lost)
"""
_RAISES, _TRAINS = "raise Late", "with torch.enable_grad(): torch.autograd.grad(model(x).sum(), model[0].weight)"


@pytest.mark.slow
@pytest.mark.fresh  # which shows warnings at a line of `__main__`
@pytest.mark.parametrize("what", [_RAISES, pytest.param(_TRAINS, marks=pytest.mark.long)], ids=["raises", "trains"])
@pytest.mark.parametrize(
    "command",
    [("render", "--continue", "-o", "x.svg"), pytest.param(("check",), marks=pytest.mark.long)],
    ids=["render", "check"],
)
def test_no_handler_is_lost_and_the_result_comes(tmp_path: Path, what: str, command: tuple[str, ...]) -> None:
    script = tmp_path / "train.py"
    script.write_text(_TRAIN.format(what=what))
    arguments = [sys.executable, "-m", "gradviz", command[0], str(script), *command[1:]]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=100, env=dict(os.environ))
    told = done.stdout + done.stderr
    assert done.returncode == ("[no-update]" in told), done.stderr[-2000:]
    assert "raised 60 lost 0" in told or "until the time limit" in told
    # on a slow machine every turn ends before its step(), which check tells
    assert "x.svg" in told or "Nothing found" in told or "[no-update]" in told


def test_the_timer_of_a_script_that_was_stopped_calls_nothing(tmp_path: Path) -> None:
    before, script = signal.getsignal(signal.SIGALRM), tmp_path / "late.py"
    script.write_text(
        "import signal, torch\n"
        "def handler(*_):\n    raise TimeoutError\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 30)\n"
        "torch.ones(1, requires_grad=True).sum().backward()\n"
    )
    captured = run_target(script)
    assert captured.result is not None
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
