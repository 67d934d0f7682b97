"""Nothing of the user's notices that its calls are seen: whatever it asks, raises, traces, pickles, scripts or compiles."""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode, has_torch_function, has_torch_function_variadic

from gradviz.cuts import torch_calls
from gradviz.cuts.torch_calls import TorchCalls


def _ignored(*_: Any) -> None:
    """An observer that looks at nothing."""


def both(code: Callable[[], object]) -> tuple[object, object]:
    """What code answers in plain Python, and under the watch."""
    torch.manual_seed(0)
    plain = code()
    torch.manual_seed(0)
    with TorchCalls(_ignored).watching():
        return plain, code()


def _warned(code: Callable[[], object]) -> list[tuple[str, str, int]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            code()
        finally:
            torch.set_warn_always(False)
    return [(str(one.message), one.filename, one.lineno) for one in told]


def _read_only() -> torch.Tensor:
    array = np.ones(3)
    array.flags.writeable = False
    return torch.from_numpy(array)


def _raised(code: Callable[[], object]) -> list[tuple[str, int | None, str]]:
    try:
        code()
    except Exception as error:
        return [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    raise AssertionError("it did not raise")


class Counted(TorchFunctionMode):
    """A mode of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Named(torch.Tensor):
    """A subclass of the user's."""


def _counted() -> list[str]:
    with Counted() as mode:
        x = torch.ones(2, 2)
        assert nn.functional.softmax(x, 1).shape
    return mode.names


def _encoder() -> bytes:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    padding = torch.tensor([[False, False, True]])
    with torch.no_grad():
        out = net(torch.randn(1, 3, 8), src_key_padding_mask=padding)
        direct = net.layers[0].self_attn.forward(out, out, out, need_weights=False)[0]  # past the hooks of modules
    return bytes(out.numpy().tobytes() + direct.numpy().tobytes())


CASES: dict[str, Callable[[], object]] = {
    "modes": lambda: (torch._C._len_torch_function_stack(), torch.overrides._get_current_function_mode_stack()),
    "overrides": lambda: (has_torch_function(()), torch.overrides.has_torch_function_unary(torch.ones(1))),
    "a subclass": lambda: torch.overrides.has_torch_function((torch.ones(1), torch.ones(1).as_subclass(Named))),
    "the class of a result": lambda: type(nn.functional.relu(torch.ones(1).as_subclass(Named))).__name__,
    "a mode of the user's": _counted,
    "attention": _encoder,
    "a warning from C++": lambda: _warned(_read_only),
    "a warning of a getter": lambda: _warned(lambda: (torch.ones(1, requires_grad=True) * 2).grad),
    "a warning from Python": lambda: _warned(lambda: nn.functional.softmax(torch.ones(3))),
    "a warning of a module": lambda: _warned(lambda: nn.Softmax()(torch.ones(3))),
    "a traceback": lambda: _raised(lambda: torch.ones(2, 3) @ torch.ones(2, 3)),
    "a traceback of a function": lambda: _raised(lambda: nn.functional.softmax(torch.ones(2), 7)),
    "a traceback of from_numpy": lambda: _raised(lambda: torch.from_numpy(3)),  # type: ignore[arg-type]
    "names": lambda: [(one.__module__, one.__name__) for one in (torch.compile, torch.overrides.has_torch_function)],
    "signature": lambda: str(inspect.signature(nn.Parameter)),
    "pickle": lambda: pickle.dumps((torch.from_numpy, torch.compile)),
    "trace": lambda: str(torch.jit.trace(lambda x: (x.sin() * 2).detach(), torch.ones(3)).graph),  # type: ignore[no-untyped-call]
    "script": lambda: str(torch.jit.script(nn.MultiheadAttention(4, 2)).code),
    "fx": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).code,
    "vmap": lambda: torch.func.vmap(lambda x: x.sin().sum())(torch.ones(2, 3)).tolist(),
    "a device for all": lambda: str(_on_meta().device),
}


def _on_meta() -> torch.Tensor:
    with torch.device("meta"):
        return torch.ones(2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_it_is_not_seen(name: str) -> None:
    plain, seen = both(CASES[name])
    assert plain == seen


def test_compiling_ends_it() -> None:
    seen: list[str] = []
    calls = TorchCalls(lambda function, *_: seen.append(function.__name__))
    with calls.watching():
        torch.ones(1).sin()
        compiled = torch._dynamo.optimize("eager")(lambda x: x.cos())  # past torch.compile
        compiled(torch.ones(1))
        torch.ones(1).tan()
        assert has_torch_function_variadic is torch._C._has_torch_function_variadic
    assert "sin" in seen and "tan" not in seen and "cos" not in seen


def test_a_long_run_rests_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_calls, "FIRST", 4)
    seen: list[str] = []
    w = torch.ones(2, requires_grad=True)
    with TorchCalls(lambda function, *_: seen.append(function.__name__)).watching():
        for _ in range(torch_calls.EVERY * 2):
            (w * 2).sum().backward()
    assert seen.count("mul") == 4 + (torch_calls.SEEN - 4) + torch_calls.SEEN


class Late(Exception):
    """What a handler of signals raises."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_what_a_handler_of_signals_raises_reaches_the_script() -> None:
    def late(*_: object) -> None:
        raise Late

    def slow(*_: Any) -> None:
        for _ in range(1000):
            pass

    before, caught = signal.signal(signal.SIGALRM, late), 0
    try:
        with TorchCalls(slow).watching():
            for _ in range(50):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.002)
                    while True:
                        torch.ones(1)
                except Late:
                    caught += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_is_not_watched() -> None:
    with TorchCalls(_ignored).watching():
        child = os.fork()
        if not child:
            os._exit(has_torch_function_variadic is not torch._C._has_torch_function_variadic)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
def test_its_end_waits_for_work_of_torchs_threads_that_refers_to_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else that thread drops the last reference, for which it waits for the interpreter."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch sets one
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with TorchCalls(_ignored).watching():
            work = [dist.all_reduce(torch.ones(1), async_op=True)]
            threading.Timer(0.2, work.clear).start()
            begun = time.monotonic()
        assert not work
        assert 0.1 < time.monotonic() - begun < 0.9
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
def test_work_that_is_held_for_long_is_waited_for_once_and_not_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(torch_calls, "_PATIENCE", 0.5)
    monkeypatch.setattr(torch_calls, "FIRST", 2)
    w = torch.ones(1, requires_grad=True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with TorchCalls(_ignored).watching():
            work = dist.all_reduce(torch.ones(1), async_op=True)
            begun = time.monotonic()
            for _ in range(20):
                w.sum().backward()
            took = time.monotonic() - begun
        del work
    finally:
        dist.destroy_process_group()
    assert took < 2


def test_everything_is_put_back() -> None:
    def installed() -> tuple[object, ...]:
        engine = sys.modules["torch.autograd"].__dict__["_engine_run_backward"]
        return (
            torch._C._has_torch_function,
            nn.Parameter.__new__.__code__,
            engine.__code__,
            torch._C._dynamo.eval_frame.set_eval_frame,
        )

    before = installed()
    with TorchCalls(_ignored).watching():
        assert not any(mine is theirs for mine, theirs in zip(installed(), before))
    assert installed() == before
