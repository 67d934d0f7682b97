"""Out of memory, explained: under an allocator limit, under the command line, and what must stay as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import gradviz
from gradviz.memory.oom import explanation, out_of_memory
from tests.cli.scripts import environment, gradviz as gradviz_process, script
from tests.walker.graphs import needs_raw

LIMITED = """
import resource
{first}
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(x)))

net, head = nn.Sequential(*(Block() for _ in range(4))), nn.Linear(256, 1)
x, history = torch.randn(2048, 256), []
for step in range(400):
    loss = head(net(x)).pow(2).mean()
    loss.backward(retain_graph=True)
    history.append(loss)
    if step == 0:
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 500 * 2**20,) * 2)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc are Linux's")


@linux
@pytest.mark.slow
def test_a_script_that_runs_out_of_memory_says_first_what_holds_it(tmp_path: Path) -> None:
    at = script(tmp_path, LIMITED.format(first="import gradviz; gradviz.explain_oom()"))
    done = subprocess.run([sys.executable, at], capture_output=True, text=True, env=environment(), check=False)
    told, _, traceback = done.stderr.partition("Traceback (most recent call last)")
    assert "gradviz: out of memory; " in told and "are saved for backward" in told
    assert "script.py:13  return x + self.narrow(torch.tanh(self.wide(x)))" in told
    assert "heaviest modules" in told and "Block ×" in told and "--budget" in told
    assert "can't allocate memory" in traceback and done.returncode == 1


@pytest.mark.slow
@linux
@pytest.mark.long
def test_a_command_says_what_holds_it(tmp_path: Path) -> None:
    done = gradviz_process("saved", script(tmp_path, LIMITED.format(first="")), "--continue", cwd=tmp_path)
    told, _, traceback = done.stderr.partition("Traceback (most recent call last)")
    assert "gradviz: out of memory" in told and "can't allocate memory" in traceback and done.returncode == 3
    assert "script.py:13" in told.partition("heaviest lines:")[2]
    assert "held for backward" in done.stdout


class Failing(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.first, self.error = nn.Linear(4, 4), error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).exp()
        raise self.error


ERRORS = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 20971520 bytes."),
    MemoryError(),
)


@pytest.mark.parametrize("error", ERRORS, ids=["accelerator", "cpu", "python"])
@needs_raw
def test_every_kind_of_it_is_known(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.excepthook
    with pytest.raises(type(error)), gradviz.explain_oom():
        Failing(error)(torch.ones(2, 4))
    told = capsys.readouterr().err
    assert told.startswith("gradviz: out of memory") and "64 B are saved for backward" in told
    assert sys.excepthook is before


def test_other_errors_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="mine"), gradviz.explain_oom():
        Failing(ValueError("mine"))(torch.ones(2, 4))
    assert capsys.readouterr().err == ""
    assert not out_of_memory(RuntimeError("not enough memory for my taste")) and not out_of_memory(None)


def test_a_call_is_undone_by_close_and_shows_what_the_hook_before_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    before, shown = sys.excepthook, list[BaseException]()
    sys.excepthook = lambda kind, error, trace: shown.append(error)
    try:
        mine, explaining = sys.excepthook, gradviz.explain_oom()
        sys.excepthook(MemoryError, MemoryError("full"), None)
        assert len(shown) == 1 and "no tensor with a graph is alive" in capsys.readouterr().err
        explaining.close()
        explaining.close()
        assert sys.excepthook is mine
    finally:
        sys.excepthook = before


@needs_raw
def test_no_tensor_is_made_for_it() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    made: list[object] = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            made.append(func)
            return func(*args, **(kwargs or {}))

    with gradviz.record() as recording:
        try:
            Failing(MemoryError())(torch.ones(2, 4))
        except MemoryError as error:
            with Seeing():
                assert "64 B are saved" in explanation(error, recording)
    assert not made
