"""The mode by which torch tells of nodes stays hidden: user code sees and sets its own, and backward runs as without us."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import traceback
import warnings
import weakref
from contextlib import nullcontext

import pytest
import torch
import torch.fx.traceback

import gradviz


def leaf() -> torch.Tensor:
    return torch.ones(2, requires_grad=True)


def test_user_code_sees_and_sets_its_own_mode() -> None:
    for on in (False, True):
        with gradviz.record(), torch.autograd.set_detect_anomaly(on, check_nan=False):
            assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (on, False)
        assert not torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()
    with gradviz.record():
        torch.autograd.set_detect_anomaly(True)
    assert torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()
    torch.set_anomaly_enabled(False)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_users_anomaly_mode_says_what_it_would_say() -> None:
    """The same stack of the node, the same words about the first nan; and its line is recorded as well."""

    def said() -> tuple[torch.Tensor, list[str]]:
        with warnings.catch_warnings(record=True) as warned, torch.autograd.detect_anomaly():
            warnings.simplefilter("always")
            y = torch.zeros(1, requires_grad=True).sqrt() * 0
            stack = y.grad_fn.metadata["traceback_"]
            with pytest.raises(RuntimeError, match="nan"):
                y.backward()
        return y, [*stack, *(str(entry.message) for entry in warned)]

    found = []
    for record in (False, True):
        with gradviz.record() if record else nullcontext() as recording:
            y, texts = said()
        found.append(texts)
    assert found[0] == found[1] and "Error detected in SqrtBackward0" in found[0][-1]
    assert "sqrt() * 0" in recording.graph(y).nodes[0].source.text


def test_a_backward_that_fails_says_no_more_than_it_would(capfd: pytest.CaptureFixture[str]) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError

    with warnings.catch_warnings(record=True) as warned, gradviz.record(), pytest.raises(ZeroDivisionError):
        warnings.simplefilter("always")
        Fails.apply(leaf()).sum().backward()
    assert [str(entry.message) for entry in warned] == [] and capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_second_backward_holds_no_more_of_the_first() -> None:
    """Anomaly mode makes nodes made in backward hold the node that made them."""

    def held() -> list[bool]:
        x = leaf()
        middle = x.exp()
        (gradient,) = torch.autograd.grad(middle.sin().sum(), x, create_graph=True)
        reference = weakref.ref(middle)
        del middle
        gc.collect()
        assert "parent_" not in gradient.grad_fn.metadata
        return [reference() is not None]

    plain = held()
    with gradviz.record():
        assert held() == plain


def test_nodes_made_in_backward_have_the_line_that_called_it() -> None:
    x = leaf()
    with gradviz.record() as recording:
        y = x.exp().sin()
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    texts = {node.source.text for node in recording.graph(gradient).nodes if node.source is not None}
    assert texts == {"y = x.exp().sin()", "(gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)"}


def test_an_error_shows_no_frame_of_ours_but_around_the_engine() -> None:
    with gradviz.record():
        try:
            leaf() @ torch.ones(3, 3)
        except RuntimeError as error:
            files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert files == [__file__]


@pytest.mark.slow
def test_threads_with_custom_functions_never_wait_for_each_other() -> None:
    """The lock of a leaf and that of the interpreter: a run that stands still ends in the limit of time.

    torch 2.13 stands still here by itself, because it asks for the interpreter under that lock when a leaf's second reference
    is made. `holder` has the second one all the time.
    """
    script = """
import sys, threading, torch, gradviz
sys.setswitchinterval(1e-5)
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * w
w, x, v = torch.ones(1, requires_grad=True), torch.ones(1), torch.ones(1, requires_grad=True)
holder = torch.ones(1); holder.grad = w
def work(odd):
    for i in range(4000):
        Double.apply(x, w) if i % 2 == odd else w * 2
with gradviz.record() as recording:
    first = v * 3
    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    last = v * 5
print([node.source and node.source.line for node in recording.graph([first, last]).nodes if node.sequence is not None])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert run.stdout == "[None, None]\n", run.stderr  # each thread gave out the same numbers


def test_a_stack_overflow_is_the_users_own() -> None:
    def deeper(x: torch.Tensor) -> torch.Tensor:
        return deeper(x * 1.5)

    with gradviz.record() as recording:
        with pytest.raises(RecursionError):
            deeper(leaf())
        y = leaf().exp()  # goes on
    assert [node.source.text for node in recording.graph(y).nodes if node.source] == ["y = leaf().exp()  # goes on"]


@pytest.mark.slow
def test_a_recording_left_open_at_exit_says_nothing() -> None:
    script = """
import sys, torch, gradviz
for tool in (2, 3, 4):
    if hasattr(sys, "monitoring"): sys.monitoring.use_tool_id(tool, "other")
recording = gradviz.record()
recording.__enter__()
y = torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum()
print(recording.graph(y).nodes[0].source.line)
import atexit
atexit.register(lambda: (torch.ones(1, requires_grad=True) * 2).backward())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert (run.returncode, run.stdout, re.sub(r".*NumPy.*\n|.*_numpy.*\n", "", run.stderr)) == (0, "7\n", "")


def test_nothing_is_collected_while_a_recording_lists_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 holds a lock while it lists them, and a `threading.local` that is collected meanwhile waits for it forever."""
    listed, collecting = sys._current_frames, []
    monkeypatch.setattr(sys, "_current_frames", lambda: collecting.append(gc.isenabled()) or listed())
    with gradviz.record():
        pass
    assert collecting == [False] and gc.isenabled()
