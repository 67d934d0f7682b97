"""Modules whose class has a `__call__` of its own, which runs no hook of torch's."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import gradviz
from gradviz.graph import Graph
from gradviz.recording import session
from tests.walker.placed import places


class Own(nn.Module):
    """Called past torch."""

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


class Scale(Own):
    """Has another one inside, and a module of torch's."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.linear = nn.Linear(2, 2)
        self.weight = nn.Parameter(torch.ones(2))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x.neg()) + 1  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.linear(x)).cos() * self.weight


def scopes(graph: Graph) -> list[tuple[str, int]]:
    return [(scope.path, scope.call) for scope in graph.scopes]


def test_nested_and_called_again() -> None:
    net, x = Scale(Own()), torch.ones(1, 2, requires_grad=True)
    with gradviz.record() as recording:
        y = net(net(x)).tan()
    graph = recording.graph(y)
    assert scopes(graph) == [
        *(("net", 1), ("net.linear", 1), ("net.inner", 1)),
        *(("net", 2), ("net.linear", 2), ("net.inner", 2)),
    ]
    for op, path in {
        "Neg": "net",
        "Addmm": "net.linear",
        "Sin": "net.inner",
        "Cos": "net",
        "Mul": "net",
        "AddBackward": "net",
    }.items():
        found = [place for place in places(graph, op) if place is not None]
        assert sorted(set(found)) == [(path, 1), (path, 2)], op
    assert places(graph, "Tan") == [None]
    assert [graph.scopes[scope.parent].path for scope in graph.scopes if scope.parent is not None] == ["net"] * 4
    assert not [leaf for leaf in graph.leaves if not leaf.names]


def test_each_round_of_a_loop_is_a_call() -> None:
    net, y = Own(), torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        for _ in range(4):
            y = net(y)
    assert sorted(places(recording.graph(y), "Sin")) == [("net", call) for call in (1, 2, 3, 4)]  # type: ignore[type-var]


class Around(nn.Module):
    """Its `__call__` adds to torch's, which runs the hooks."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x.neg()).cos()  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def test_a_call_that_ends_up_in_torchs_is_one_call() -> None:
    net, x = nn.Sequential(Around(), Around()), torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        y = net(x)
    graph = recording.graph(y)
    assert scopes(graph) == [("net", 1), ("net.0", 1), ("net.1", 1)]
    for op in ("Neg", "Sin", "Cos"):
        assert places(graph, op) == [("net.1", 1), ("net.0", 1)], op
    assert graph.scopes[1].output is not None


class Recursive(Own):
    def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        return self(x, depth - 1).cos() if depth else x.sin()


class Direct(Own):
    """Runs the `forward` of another one without a call, as kernels of gpytorch do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Own()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner.forward(x).cos()


def test_recursion_and_forward_without_a_call() -> None:
    x = torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        recursive, direct = Recursive(), Direct()
        y, z = recursive(x), direct(x)
    assert places(recording.graph(y), "Sin") == [("recursive", 3)]
    assert places(recording.graph(y), "Cos") == [("recursive", 1), ("recursive", 2)]
    assert places(recording.graph(z), "Sin") == [("direct.inner", 1)]
    assert places(recording.graph(z), "Cos") == [("direct", 1)]


class Failing(Own):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.sin())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_calls(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Failing, x: torch.Tensor) -> torch.Tensor:
        raise error(x.sin())

    monkeypatch.setattr(Failing, "forward", fails)
    net, x = nn.Sequential(Scale(Failing())), torch.ones(1, 2, requires_grad=True)
    after = nn.Sequential(Own())
    with gradviz.record() as recording:
        with pytest.raises(error):
            net(x)
        y = after(x.exp()).tan()
    graph = recording.graph(y)
    assert places(graph, "Exp") == places(graph, "Tan") == [None]
    assert places(graph, "Sin") == [("after.0", 1)]


class IntervalMap(Own):
    """A `__call__` that is a generator."""

    def __call__(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield x.sin()
        yield x.cos()


def test_the_module_that_failed() -> None:
    class Inside(Own):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() @ torch.ones(3, 3)

    x = torch.ones(1, 2, requires_grad=True)
    for net, path in ((nn.Sequential(Scale(Inside())), "net.0.inner"), (Scale(nn.Linear(3, 3)), "net.inner")):
        with gradviz.record() as recording, pytest.raises(RuntimeError) as caught:
            net(x)
        assert recording.last_outputs(caught.value).module == path


def test_a_generator_rests_and_goes_on() -> None:
    steps, other, x = IntervalMap(), Own(), torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        running = steps(x)
        a = next(running)
        b = other(x.exp())
        c = next(running)
    graph = recording.graph((a, b, c))
    assert places(graph, "Exp") == [None]
    assert sorted(places(graph, "Sin")) == [("other", 1), ("steps", 1)]  # type: ignore[type-var]
    assert places(graph, "Cos") == [("steps", 1)]


def test_what_nobody_saw_lies_in_no_call() -> None:
    net, x = Own(), torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        y = net(x)
        session._set(False)  # as while another thread runs
        y = y.tan()
    assert places(recording.graph(y), "Tan") == [None]


class Dropping(Own):
    """Deletes what it was given before it goes on."""

    def __init__(self, gone: Callable[[], None]) -> None:
        super().__init__()
        self.gone = gone

    def __call__(self, box: list[torch.Tensor]) -> torch.Tensor:
        big = box.pop()
        self.held = weakref.ref(big)
        y = big.sum()
        del big
        self.gone()
        return y


@pytest.mark.slow
def test_nothing_is_kept_alive() -> None:
    dead: list[bool] = []
    net = Dropping(lambda: dead.append(net.held() is None))
    with gradviz.record() as recording:
        net([torch.ones(2, requires_grad=True) * 1])
        argument = torch.ones(2, requires_grad=True) * 1
        given = weakref.ref(argument)
        Own()(argument)
        del argument
        assert given() is None
        inner = Own()
        inner(torch.ones(1, requires_grad=True))
        gone = weakref.ref(inner)
        del inner
        gc.collect()
        assert gone() is None
    assert dead == [True] and recording is not None


class Watching(Own):
    """Keeps the frame it ran in."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        with gradviz.record() as recording:
            y = x.sin()
        self.frame = sys._getframe()
        self.graph = recording.graph(y)
        return y


def test_running_frames_are_left_as_they_were() -> None:
    net = Watching()
    net(torch.ones(2, requires_grad=True))
    assert net.frame.f_trace is None
    assert places(net.graph, "Sin") == [("net", 1)]


def test_a_debugger_keeps_its_frames() -> None:
    net, y = Own(), torch.ones(2, requires_grad=True)
    seen: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is Own.forward.__code__:
            seen.append(event)
        return trace

    before = sys.gettrace()
    with gradviz.record() as recording:
        sys.settrace(trace)
        try:
            y = net(y)
        finally:
            sys.settrace(before)
    assert seen == ["call", "line", "return"]
    assert places(recording.graph(y), "Sin") == [("net", 1)]


def test_ordinary_modules_cost_nothing() -> None:
    class Plain:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    with gradviz.record() as recording:
        nn.Sequential(nn.Linear(2, 2), nn.ReLU())(Plain()(torch.ones(1, 2, requires_grad=True)))
        assert not recording._running().calls.own.codes
