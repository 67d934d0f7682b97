"""Functions of torch that are told of: what they are, where they warn and raise is as without; and what is told."""

from __future__ import annotations

import inspect
import pickle
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradviz.armour.taps import tapped

ENGINE = torch.autograd.graph._engine_run_backward
FUNCTIONS: tuple[Any, ...] = (
    ENGINE,
    torch.optim.Optimizer.__init__,
    torch.optim.Optimizer.zero_grad,
    torch.nn.Module.zero_grad,
    torch.nn.utils.clip_grad_norm_,
    torch.amp.GradScaler.scale,
    torch.optim.lr_scheduler.LRScheduler.__init__,
    torch.export.export,
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_a_tapped_function_is_itself(function: Any) -> None:
    def face() -> tuple[object, ...]:
        code = function.__code__
        names = function.__module__, function.__qualname__, function.__name__, function.__doc__
        lines = code.co_filename, code.co_firstlineno, code.co_name, code.co_varnames[: code.co_argcount]
        return (*names, *lines, inspect.signature(function), function.__defaults__, function.__kwdefaults__)

    before, code = face(), function.__code__
    with tapped(function, lambda *_, **__: None):
        assert function.__code__ is not code  # else nothing would be told
        assert face() == before
        if "." not in function.__qualname__:
            assert pickle.loads(pickle.dumps(function)) is function
    assert function.__code__ is code


class _Warns(torch.autograd.Function):
    """Warns at every level of the stack as its backward runs, and notes the stack."""

    stack: tuple[str, ...] = ()

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        for level in range(1, 8):
            warnings.warn(f"level {level}", stacklevel=level)
        frames = traceback.extract_stack()[-7:]
        _Warns.stack = tuple(f"{frame.filename}:{frame.lineno} {frame.name} {frame.line}" for frame in frames)
        return gradient


def _seen_in_backward() -> tuple[object, ...]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _Warns.apply(torch.ones(1, requires_grad=True)).sum().backward()
    told = [(warning.filename, warning.lineno, str(warning.message)) for warning in caught]
    return _Warns.stack, told


def test_a_warning_in_backward_names_the_line_that_it_names_without() -> None:
    rounds = []
    for told in (False, True):  # one line calls both
        with tapped(ENGINE, lambda *_, **__: lambda *_: None) if told else warnings.catch_warnings():
            rounds.append(_seen_in_backward())
    assert rounds[0] == rounds[1]


def test_an_error_has_the_traceback_that_it_has_without() -> None:
    def lines() -> list[str]:
        try:
            torch.ones(1).sum().backward()
        except RuntimeError as error:
            return traceback.format_tb(error.__traceback__)
        return []

    plain = lines()
    with tapped(ENGINE, lambda *_, **__: lambda *_: None):
        assert lines() == plain
    assert any("run_backward" in line for line in plain)


def test_what_is_told_and_in_which_order() -> None:
    told: list[object] = []

    def listener(name: str) -> Callable[..., Callable[..., None]]:
        def began(frame: Any, outputs: Any, *_: Any, **__: Any) -> Callable[..., None]:
            told.append((name, frame.f_code.co_name, len(outputs)))
            return lambda returned, result: told.append((name, returned))

        return began

    with tapped(ENGINE, listener("inner")), tapped(ENGINE, listener("outer")):
        torch.ones(1, requires_grad=True).sum().backward()
        with pytest.raises(RuntimeError):
            torch.ones(1).sum().backward()
    began = [("outer", "_engine_run_backward", 1), ("inner", "_engine_run_backward", 1)]
    assert told == [*began, ("inner", True), ("outer", True), *began, ("inner", False), ("outer", False)]
    torch.ones(1, requires_grad=True).sum().backward()
    assert len(told) == 8


def test_what_a_listener_raises_at_the_beginning_ends_the_call_and_the_others_know() -> None:
    told: list[bool] = []

    def stops(*_: Any, **__: Any) -> None:
        raise KeyError("stop")

    leaf = torch.ones(1, requires_grad=True)
    with (
        tapped(ENGINE, stops),
        tapped(ENGINE, lambda *_, **__: lambda returned, result: told.append(returned)),
        pytest.raises(KeyError),
    ):
        leaf.sum().backward()
    assert told == [False]
    assert leaf.grad is None


def test_methods_with_super_and_closures_work_on() -> None:
    layer, told = torch.nn.Linear(2, 1), list[str]()

    def began(frame: Any, *_: Any, **__: Any) -> None:
        told.append(frame.f_code.co_name)

    with tapped(torch.optim.lr_scheduler.LRScheduler.__init__, began), tapped(torch.optim.Optimizer.zero_grad, began):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.zero_grad()
    assert scheduler.get_last_lr() == [0.25]
    assert all(parameter.grad is None for parameter in layer.parameters())
    assert told == ["__init__", torch.optim.Optimizer.zero_grad.__code__.co_name]


def test_what_the_function_returns_is_told() -> None:
    told: list[object] = []
    weight = torch.ones(2, requires_grad=True)
    with tapped(ENGINE, lambda *_, **__: lambda returned, result: told.append(result)):
        (gradient,) = torch.autograd.grad((weight * 3).sum(), weight)
    with tapped(torch.nn.Parameter.__new__, lambda *_, **__: lambda returned, result: told.append(result)):
        parameter = torch.nn.Parameter(torch.ones(2))
    assert isinstance(told[0], tuple) and told[0][0] is gradient
    assert told[1] is parameter
