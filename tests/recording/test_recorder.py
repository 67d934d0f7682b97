"""A recording changes nothing, and places every node where it was made."""

from __future__ import annotations

import gc
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import gradviz
from gradviz.errors import GradvizError
from gradviz.graph import Graph
from gradviz.recording import session
from tests.walker.graphs import needs_raw
from tests.walker.models import MODELS, Mixed
from tests.walker.placed import place, places

_TORCH = torch.__file__.rpartition("__init__")[0]


@pytest.fixture(autouse=True)
def everything_is_undone() -> Iterator[None]:
    hooks = torch.nn.modules.module
    warns = getattr(hooks, "_has_any_global_hook", None)  # torch 2.7 and later
    before = (sys.gettrace(), threading.gettrace())
    yield
    assert session._current is None
    assert not hooks._global_forward_hooks and not hooks._global_forward_pre_hooks
    assert not hooks._global_forward_hooks_always_called
    assert getattr(hooks, "_has_any_global_hook", None) is warns
    assert (sys.gettrace(), threading.gettrace()) == before


def texts(graph: Graph, op: str) -> list[str]:
    return [node.source.text if node.source else "" for node in graph.nodes if node.op.startswith(op)]


# -- it changes nothing ------------------------------------------------------------------------------------------------


def trained(name: str, recorded: bool) -> tuple[object, ...]:
    """Two steps of training: losses, gradients, buffers, state of the random numbers, and the graph's own numbers."""
    torch.manual_seed(0)
    net, run = MODELS[name]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    first = torch._C._autograd._get_sequence_nr()
    seen: list[object] = []

    def step() -> None:
        optimizer.zero_grad()
        loss = run()
        graph = gradviz.walk(loss, model=net)
        seen.append([(node.op, node.sequence and node.sequence - first, node.names) for node in graph.nodes])
        seen.append(graph.edges)
        loss.backward()
        seen.append([parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None])
        optimizer.step()
        seen.append([loss.detach(), *(buffer.clone() for buffer in net.buffers()), torch.get_rng_state()])

    for _ in range(2):
        if recorded:
            with gradviz.record():
                step()
        else:
            step()
    return tuple(seen)


@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same_bit_for_bit(name: str) -> None:
    plain, recorded = trained(name, False), trained(name, True)
    for left, right in zip(plain, recorded, strict=True):
        if isinstance(left, list) and left and isinstance(left[0], torch.Tensor):
            assert isinstance(right, list)
            assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))
        else:
            assert left == right


@pytest.mark.slow
def test_nothing_is_kept_alive() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    outputs: list[weakref.ref[torch.Tensor]] = []
    for module in net:
        module.register_forward_hook(lambda module, arguments, output: outputs.append(weakref.ref(output)))
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 3)).sum()
        recording.graph(loss)
        del loss
        assert [output() for output in outputs] == [None, None]
    whole = weakref.ref(net)
    del net
    gc.collect()
    assert whole() is None
    notes = weakref.ref(recording._running())
    del recording
    gc.collect()
    assert notes() is None


def test_undone_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), gradviz.record():
        1 / 0  # noqa: B018
    with pytest.raises(RuntimeError), gradviz.record():
        nn.Linear(2, 2)(torch.ones(1, 3))


# -- source lines ------------------------------------------------------------------------------------------------------


def line_by_anomaly_mode(node: torch.autograd.graph.Node) -> tuple[str, int] | None:
    """The innermost frame outside torch in the traceback that torch itself noted when it made the node."""
    for entry in reversed(node.metadata.get("traceback_", [])):
        found = re.match(r'\s*File "(.*)", line (\d+)', entry)
        if found and not found[1].startswith(_TORCH):
            return found[1], int(found[2])
    return None


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", MODELS)
def test_lines_are_those_of_anomaly_mode(name: str) -> None:
    _, run = MODELS[name]()
    with torch.autograd.detect_anomaly(check_nan=False), gradviz.record() as recording:
        loss = run()
    graph = recording.graph(loss)
    expected = {}
    stack = [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node._sequence_nr() not in expected:
            expected[node._sequence_nr()] = line_by_anomaly_mode(node)
            stack.extend(child for child, _ in node.next_functions)
    made = [node for node in graph.nodes if node.sequence is not None]
    assert made and all(node.source for node in made)
    for node in made:
        assert node.source is not None
        assert (node.source.file, node.source.line) == expected[node.sequence], node  # type: ignore[index]


def test_the_line_says_its_function_and_text() -> None:
    x = torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        y = x.exp()  # the line
    (node, _) = recording.graph(y).nodes
    assert node.source is not None
    assert node.source.function == "test_the_line_says_its_function_and_text"
    assert node.source.text == "y = x.exp()  # the line"
    assert node.source.file == __file__


def test_loss_and_code_outside_modules_have_lines() -> None:
    net, x = Mixed(), torch.randn(3, 4)
    with gradviz.record() as recording:
        out = net(x)
        loss = nn.functional.mse_loss(out, x)
        loss = loss + 0.1 * sum(p.abs().sum() for p in net.parameters())
    graph = recording.graph(loss)
    assert texts(graph, "MseLoss") == ["loss = nn.functional.mse_loss(out, x)"]
    assert set(texts(graph, "Abs")) == {"loss = loss + 0.1 * sum(p.abs().sum() for p in net.parameters())"}
    assert texts(graph, "Square") == ["parts = [Square.apply(part) for part in hidden.split(2, dim=1)]"] * 2
    assert texts(graph, "Neg") == ["return (lambda y: -y)(joined) + joined[:, [0, 1, 2, 3]]"]
    assert places(graph, "Mse") == [None]


def test_double_backward() -> None:
    w = torch.tensor(2.0, requires_grad=True)
    with gradviz.record() as recording:
        y = w**3
        (gradient,) = torch.autograd.grad(y, w, create_graph=True)
        penalty = gradient * gradient
    graph = recording.graph(penalty)
    assert all("torch.autograd.grad(" in text for text in texts(graph, "Pow"))
    assert texts(graph, "Mul")[0] == "penalty = gradient * gradient"


# -- odd calls ---------------------------------------------------------------------------------------------------------


def test_checkpoint_recomputation_disturbs_nothing() -> None:
    net, run = MODELS["checkpointed"]()
    with gradviz.record() as recording:
        loss = run()
        before = recording.graph(loss, model=net)
        loss.backward(retain_graph=True)
        after = recording.graph(loss, model=net)
    assert [place(after, node) for node in after.nodes] == [place(before, node) for node in before.nodes]
    assert after.scopes == before.scopes
    assert places(before, "Tanh") == [("net.blocks.1.1", 1), ("net.blocks.0.1", 1)]


def test_interrupt_leaves_no_call_open() -> None:
    class Interrupted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    relu, x = nn.ReLU(), torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        with pytest.raises(KeyboardInterrupt):
            Interrupted()(x)
        y = relu(x)
    graph = recording.graph(y)
    assert [(scope.path, scope.parent) for scope in graph.scopes] == [("relu", None)]


def test_exception_in_forward_that_the_user_catches() -> None:
    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wrong, self.right = nn.Linear(3, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.wrong(x)  # type: ignore[no-any-return]
            except RuntimeError:
                return self.right(x).relu()  # type: ignore[no-any-return]

    net = Tries()
    with gradviz.record() as recording:
        y = net(torch.ones(1, 2))
    graph = recording.graph(y, model=net)
    assert (places(graph, "Addmm"), places(graph, "Relu")) == ([("net.right", 1)], [("net", 1)])


# -- several recordings and threads ------------------------------------------------------------------------------------


@needs_raw
def test_nested_recordings() -> None:
    x = torch.ones(2, requires_grad=True)
    with gradviz.record() as outer:
        a = x.exp()
        with gradviz.record() as inner:
            b = a.sin()
        c = b.cos()
    told = {node.op: node.source is not None for node in inner.graph(c).nodes}
    assert told == {"CosBackward0": False, "SinBackward0": True, "ExpBackward0": False, "AccumulateGrad": False}
    assert "2 operations ran outside the recording" in inner.graph(c).notes[0]
    assert all(node.source for node in outer.graph(c).nodes if node.sequence is not None)


def run_in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_two_threads_with_the_same_numbers_are_left_alone() -> None:
    made: list[torch.Tensor] = []
    x = torch.ones(2, requires_grad=True)

    def work() -> None:
        made.append(x.exp().sin())

    with gradviz.record() as recording:
        run_in_thread(work)
        run_in_thread(work)
    graph = recording.graph(made[0] + made[1].cos())
    assert all(node.source is None for node in graph.nodes if node.op in ("ExpBackward0", "SinBackward0"))
    assert any("more than one thread made nodes" in note for note in graph.notes)


@pytest.mark.parametrize("first_out", ["main", "other"])
def test_recordings_in_two_threads_at_once(first_out: str) -> None:
    """Each has its own module calls, and no lines."""
    net, other_net = nn.Linear(2, 2), nn.Linear(2, 2)
    begun, go_on = threading.Event(), threading.Event()
    graphs: list[Graph] = []

    def work() -> None:  # runs already when the main thread begins to record
        go_on.wait(10)
        go_on.clear()
        with gradviz.record() as recording:
            begun.set()
            if first_out == "main":
                go_on.wait(10)
            y = other_net(torch.ones(1, 2))
            graphs.append(recording.graph(y, model=other_net))

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        torch.ones(1, requires_grad=True).exp()  # so that the two threads give out different numbers
    with gradviz.record() as recording:
        go_on.set()
        begun.wait(10)
        if first_out == "other":
            thread.join()
        z = net(torch.ones(1, 2))
        graphs.append(recording.graph(z, model=net))
    go_on.set()
    thread.join()
    unsure = (
        None if first_out == "other" else ("other_net", 1)
    )  # nobody saw how many nodes the other thread made before it ended
    found = [place for graph in graphs for place in places(graph, "Addmm")]
    names = ("other_net", "net") if first_out == "other" else ("net", "other_net")
    assert found == [(names[0], 1), unsure and (names[1], 1)]
    assert [texts(graph, "Addmm") for graph in graphs] == [[""]] * 2
    assert not torch._C.is_anomaly_enabled()


# -- use ---------------------------------------------------------------------------------------------------------------


def test_wrong_use() -> None:
    recording = gradviz.record()
    with pytest.raises(GradvizError, match="has not begun"):
        recording.graph(torch.ones(1))
    with recording:
        pass
    with pytest.raises(GradvizError, match="used already"), recording:
        pass


def test_calls_are_counted_though_some_made_nothing_of_the_graph() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.unused = self.lin(x)
            return self.lin(self.lin(x) + 3)  # type: ignore[no-any-return]

    net = Net()
    with gradviz.record() as recording:
        first, second = net(torch.ones(2, 4)), net(torch.ones(2, 4))
    graph = recording.graph(second, model=net)
    assert sorted((scope.path, scope.call) for scope in graph.scopes) == [("net", 1), ("net.lin", 2), ("net.lin", 3)]
    both = recording.graph((first, second), model=net)
    assert [scope.call for scope in both.scopes if scope.path == "net.lin"] == [2, 3, 5, 6]


def test_modules_that_are_added_after_a_first_call_count() -> None:
    model = nn.Sequential(nn.Linear(2, 3))
    with gradviz.record() as recording:
        model(torch.ones(1, 2))
        model.append(nn.Linear(3, 4))
        model.requires_grad_(False)
        loss = model(torch.ones(1, 2, requires_grad=True)).sum()
    (scope,) = (scope for scope in recording.graph(loss).scopes if scope.type == "Sequential")
    assert scope.parameters == 9 + 16
