"""The guard around reading: no mode, no class of tensors and no signal handler of the user's takes part."""

from __future__ import annotations

import collections
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import gradviz
from gradviz.armour.isolation import isolated
from gradviz.armour.signals import HANDLERS, signalled, uninterrupted

SEEN: collections.Counter[str] = collections.Counter()
needs_alarms = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        SEEN[str(function)] += 1
        return function(*arguments, **(options or {}))


class Called(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        SEEN[str(function)] += 1
        return function(*arguments, **(options or {}))


class Asked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        SEEN[str(function)] += 1
        return super().__torch_function__(function, types, arguments, options or {})


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield


@pytest.mark.parametrize("modes", [[Dispatched], [Called], [Called, Dispatched, Called, Dispatched]])
def test_no_mode_sees_what_is_done_inside_and_each_sees_what_comes_after(modes: list[Any]) -> None:
    entered = [mode() for mode in modes]
    for mode in entered:
        mode.__enter__()
    try:
        with isolated(), isolated():
            torch.ones(2).sum().item()
        assert not SEEN
        torch.ones(2)
        assert SEEN.total() == len(modes)
    finally:
        for mode in reversed(entered):
            mode.__exit__(None, None, None)


def test_every_public_reading_is_unseen() -> None:
    model = torch.nn.Linear(3, 2)
    weight = torch.nn.Parameter(torch.ones(3, 3).as_subclass(Asked))
    loss = (model(torch.ones(2, 3)).sum() * (weight * weight).sum()).log()
    SEEN.clear()
    with Dispatched(), Called():
        gradviz.walk(loss)
        str(gradviz.check(loss, model=model))
        str(gradviz.saved(gradviz.walk(loss)))
    assert not SEEN


class Late(Exception):
    """What a handler raises."""


@pytest.fixture
def handler_raises() -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        SEEN["handled"] += 1
        raise Late

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@needs_alarms
def test_a_signal_waits_for_the_end_and_what_its_handler_raises_gets_out(handler_raises: None) -> None:
    reached = []
    with pytest.raises(Late) as raised:
        with isolated(), suppress(Exception):
            with isolated():
                signal.raise_signal(signal.SIGUSR1)
                reached.append("inner")
            reached.append("outer")
        reached.append("never")
    assert reached == ["inner", "outer"]
    assert signalled(raised.value)
    assert SEEN == {"handled": 1}


@needs_alarms
def test_a_signal_in_the_midst_of_torchs_work_is_handled_a_little_later(handler_raises: None) -> None:
    @uninterrupted
    def hook(module: torch.nn.Module, inputs: object) -> None:
        signal.raise_signal(signal.SIGUSR1)
        reached.append("hook")

    reached: list[str] = []
    model = torch.nn.Linear(3, 2)
    model.register_forward_pre_hook(hook)
    begun = time.monotonic()
    with HANDLERS.replaced(), pytest.raises(Late) as raised:
        model(torch.ones(2, 3))
        time.sleep(10)
    assert time.monotonic() - begun < 5  # it wakes the main thread
    assert reached == ["hook"] and SEEN == {"handled": 1}
    assert signalled(raised.value)


@needs_alarms
def test_every_signal_that_came_is_handled_although_the_first_handler_raises(handler_raises: None) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: SEEN.update(["second"]))
    try:
        with pytest.raises(Late), isolated():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert SEEN == {"handled": 1, "second": 1}


@needs_alarms
def test_the_user_sees_the_handlers_that_were_set(handler_raises: None) -> None:
    mine = signal.getsignal(signal.SIGUSR1)
    with HANDLERS.replaced():
        assert signal.getsignal(signal.SIGUSR1) is mine
        assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is mine
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        assert signal.signal(signal.SIGUSR1, mine) is signal.SIG_IGN
        assert signal.signal.__module__ == "signal" and signal.signal.__name__ == "signal"
    assert signal.getsignal(signal.SIGUSR1) is mine
    with pytest.raises(Late):
        signal.raise_signal(signal.SIGUSR1)


@needs_alarms
def test_what_another_thread_takes_back_the_main_one_puts_back(handler_raises: None) -> None:
    mine, setter = signal.getsignal(signal.SIGUSR1), signal.signal
    HANDLERS.replace()
    thread = threading.Thread(target=HANDLERS.restore)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR1) is mine
    assert signal.signal is setter
    with pytest.raises(Late):
        signal.raise_signal(signal.SIGUSR1)


@needs_alarms
def test_a_handler_does_not_run_in_the_midst_of_what_is_marked(handler_raises: None) -> None:
    order = []

    @uninterrupted
    def hook() -> None:
        signal.raise_signal(signal.SIGUSR1)
        order.append("hook")

    with pytest.raises(Late), HANDLERS.replaced():
        hook()
        # no loop: Python 3.13.0 lets what a handler raises at the jump of one pass by the `with` around it
        time.sleep(10)
    assert order == ["hook"]


def test_another_thread_reads_without_touching_handlers() -> None:
    before, found = signal.getsignal(signal.SIGINT), []

    def read() -> None:
        with isolated():
            found.append(torch.ones(2).sum().item())

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert found == [2.0]
    assert signal.getsignal(signal.SIGINT) is before


def test_other_errors_are_not_of_a_signal() -> None:
    try:
        with isolated():
            raise ValueError("of the reading")
    except ValueError as error:
        assert not signalled(error)
