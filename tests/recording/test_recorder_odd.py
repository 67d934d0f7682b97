"""Recording next to torch's own machinery: compiled functions, tracing, subclasses, warnings as errors, hooks."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.testing
from torch import nn

import gradviz
from gradviz.walker import private


@pytest.fixture
def compiled() -> Any:
    torch._dynamo.reset()
    yield torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()


def is_compiled(tensor: torch.Tensor) -> bool:
    return type(tensor.grad_fn).__name__ == "CompiledFunctionBackward"


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*global hooks.*")
@pytest.mark.parametrize("compile_first", [True, False])
@pytest.mark.parametrize("whole_module", [True, False])
def test_compiled_code_stays_compiled(compiled: Any, compile_first: bool, whole_module: bool) -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.ones(2, 4)
    run: Callable[..., torch.Tensor] = (
        torch.compile(net, backend=compiled)
        if whole_module
        else torch.compile(lambda x: net(x).sin(), backend=compiled)
    )
    if compile_first:
        run(x)
    with gradviz.record() as recording:
        inside = [run(x), run(x)]
    graph = recording.graph(inside[0])
    after = run(x)
    assert all(is_compiled(y) for y in (*inside, after))
    assert compiled.frame_count <= 2
    if compile_first and torch.__version__ >= "2.8":  # an older torch compiles once more where there is any global hook
        assert compiled.frame_count == 1
    assert all(node.source is not None for node in graph.nodes if node.sequence is not None)
    assert torch.equal(inside[0], after)


def test_what_gradviz_tries_out_meanwhile_is_no_thread_of_the_users() -> None:
    with gradviz.record() as recording:
        y = torch.ones(1, requires_grad=True) * 2
        private._Probe()  # the first walk in a process makes one
    assert not any("thread" in note for note in recording.graph(y).notes)


def test_a_jit_trace_is_the_same() -> None:
    net, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)
    plain = torch.jit.trace(net, x).graph
    with gradviz.record():
        recorded = torch.jit.trace(net, x).graph
    assert without_counters(recorded) == without_counters(plain)


def without_counters(graph: object) -> str:
    """The text of a traced graph without the numbers that tell classes of one name apart."""
    return re.sub(r"(___torch_mangle_\d+\.)", "", str(graph))


class Counting(torch.Tensor):
    """A subclass that counts what runs through it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Counting.calls += 1
        return super().__torch_function__(function, types, args, kwargs or {})


def test_reading_an_output_runs_nobodys_code() -> None:
    net = nn.Sequential(nn.Identity(), nn.Flatten())
    x = torch.ones(2, 3).as_subclass(Counting)
    Counting.calls = 0
    net(x)
    plain, Counting.calls = Counting.calls, 0
    with gradviz.record():
        net(x)
    assert Counting.calls == plain > 0


def test_the_users_own_hooks_run_as_before() -> None:
    seen: list[str] = []
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].register_forward_hook(lambda module, arguments, output: output * 2)
    net[0].register_forward_pre_hook(lambda module, arguments: (arguments[0] + 1,))
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, arguments, output: seen.append(type(module).__name__)
    )
    try:
        plain = net(torch.ones(1, 2))
        with gradviz.record():
            recorded = net(torch.ones(1, 2))
        assert torch.equal(plain, recorded)
        assert seen == ["Linear", "Sequential"] * 2
        assert nn.modules.module._global_forward_hooks.keys() == {handle.id}
    finally:
        handle.remove()


def test_local_variables_are_freed_as_before() -> None:
    """Tracing copies a function's variables; the copy must not outlive the recording."""
    import weakref

    big = torch.ones(10)
    with gradviz.record():
        pass
    gone = weakref.ref(big)
    del big
    assert gone() is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring leaves trace functions alone")
def test_a_debuggers_trace_function_is_put_back() -> None:
    def trace(frame: Any, event: str, argument: Any) -> Any:
        return trace

    before, frame = sys.gettrace(), sys._getframe()
    sys.settrace(trace)
    frame.f_trace = trace
    threading.settrace(trace)
    try:
        with pytest.raises(ZeroDivisionError), gradviz.record():
            1 / 0  # noqa: B018
        assert sys.gettrace() is trace and frame.f_trace is trace and threading.gettrace() is trace
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]
        frame.f_trace = None


def test_nothing_is_warned_of_near_the_limit_of_recursion() -> None:
    net = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(4, 1))))
    limit, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    met = 0
    with gradviz.record() as recording, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        net(torch.ones(2, 4))
        for room in range(15, 90):
            sys.setrecursionlimit(depth + room)
            try:
                net(torch.ones(2, 4)).sum()
            except RecursionError:
                met += 1
            finally:
                sys.setrecursionlimit(limit)
        loss = net(torch.ones(2, 4)).sum()
    assert not warned and 0 < met < 75
    graph = recording.graph(loss)
    assert [graph.scopes[node.scope].path for node in graph.nodes if node.scope is not None][:1] == ["net.0.0.0"]
