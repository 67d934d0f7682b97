"""Which functions become groups, and that the box of a call holds exactly what was made during that call."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradviz
from gradviz.fold.export import fold
from gradviz.fold.program import LEAST_CALLS, LEAST_OPS, with_program
from gradviz.graph import Construct, Graph, SourceLine
from gradviz.graph.origins import ScopeTree
from gradviz.run.reading import read_graph
from gradviz.run.run import Run
from gradviz.run.target import parse_target
from gradviz.walker.private import peek_sequence
from tests.blocks import ROOT
from tests.fold.test_fold import Program, titles


def made(ops: list[tuple[str, str]]) -> Graph:
    """A chain of ops, each made by the function given; ops of one function after each other are one call."""
    program = Program()
    x = program.op("ExpBackward0", weights=["w"])
    for name, _ in ops:
        x = program.op(name, x)
    graph = program.graph()
    node_of = {node.sequence: node.id for node in graph.nodes}
    calls: list[tuple[str, list[int]]] = []
    for place, (_, function) in enumerate(ops, 1):
        if not calls or calls[-1][0] != function:
            calls.append((function, []))
        calls[-1][1].append(node_of[place])
    functions = (
        Construct("function", name, SourceLine("ode.py", 1, name), nodes=tuple(nodes))
        for name, nodes in calls
        if name != "main"
    )
    return replace(graph, program=tuple(functions))


def euler(steps: int) -> Graph:
    """`y = y + h * func(y)` again and again, and a mean."""
    step = [("MmBackward0", "func"), ("TanhBackward0", "func"), ("AddBackward0", "main")]
    return made([*(op for _ in range(steps) for op in step), ("MeanBackward0", "main")])


def names(graph: Graph) -> set[str]:
    return {scope.path for scope in with_program(graph)[0].scopes}


def test_a_function_that_is_called_again_and_again_is_a_group_with_its_name() -> None:
    graph = euler(40)
    folded = fold(graph, depth=1)
    assert titles(folded) == [("loop", "3 ops, matmul to add", 40)]
    assert folded.whole is graph
    assert fold(folded, depth=1) == folded
    assert names(euler(LEAST_CALLS - 1)) == set()


def test_a_long_function_outside_of_modules_is_a_group_when_called_once() -> None:
    loss = [(f"Loss{i}Backward0", "dice") for i in range(LEAST_OPS)]
    assert names(made([*loss, ("AddBackward0", "main")])) == {"dice()"}
    assert names(made([*loss[1:], ("AddBackward0", "main")])) == set()
    assert names(made(loss)) == set()  # it made the output: the script's own work


def test_graphs_that_say_nothing_of_calls_have_no_groups_of_functions() -> None:
    graph = euler(40)
    source = SourceLine("ode.py", 1, "func")
    nodes = tuple(node._replace(source=source) for node in graph.nodes)
    assert names(replace(graph, nodes=nodes, program=())) == set()


# -- calls as the interpreter made them ------------------------------------------------


class Called:
    """The calls of each function in some files, by the sequence numbers of what was made meanwhile."""

    def __init__(self, *files: str) -> None:
        self._files = files
        self._open: dict[int, int] = {}
        self._held: list[FrameType] = []  # of generators: another one's has another identity
        self.calls: list[tuple[CodeType, int, int, int]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename not in self._files:
            return
        if event == "call":
            self._open.setdefault(id(frame), peek_sequence())
        elif event == "return" and id(frame) in self._open:
            is_resumed = frame.f_code.co_flags & inspect.CO_GENERATOR
            if is_resumed:
                self._held.append(frame)
            began = self._open.pop(id(frame))
            self.calls.append((frame.f_code, began, peek_sequence(), id(frame) if is_resumed else -began))

    @contextmanager
    def profiling(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)

    def boxes(self, graph: Graph) -> dict[tuple[str, int], set[int]]:
        """What each call of a function made of the graph, by name and number."""
        node_of = {node.sequence: node.id for node in graph.nodes if node.sequence is not None}
        number: Counter[CodeType] = Counter()
        found: dict[tuple[str, int], set[int]] = {}
        resumed: dict[int, set[int]] = {}
        for code, first, after, identity in sorted(self.calls, key=lambda call: (call[1], -call[2])):
            nodes = {node for sequence, node in node_of.items() if first <= sequence < after}
            if nodes and identity in resumed:
                resumed[identity] |= nodes
            elif nodes:
                number[code] += 1
                found[f"{code.co_name}()", number[code]] = nodes
                if identity > 0:
                    resumed[identity] = nodes
        return found


def check(graph: Graph, called: Called) -> set[str]:
    """Every scope and every drawn box of a function against what its call made; their names."""
    expected = called.boxes(graph)
    named, _ = with_program(graph)
    members = ScopeTree(named).members
    functions = {i: scope for i, scope in enumerate(named.scopes) if scope.kind == "function"}
    for i, scope in functions.items():
        assert set(members[i]) == expected[scope.path, scope.call], (scope.path, scope.call)

    for depth in (1, 2, 3, "auto"):
        for node in fold(graph, depth=depth).nodes:  # type: ignore[arg-type]
            match = re.fullmatch(r"(\w+\(\))(?:, call (\d+))?", node.op)
            if match is not None and node.folded is not None and node.folded.count == 1:
                drawn = set(node.folded.nodes) - graph.leaf_of.keys()
                assert drawn == expected[match[1], int(match[2] or 1)]
    return {scope.path for scope in functions.values()}


PROGRAMS = {
    "tests/real/programs/neural_ode_rk4.py": {"odeint()", "rk4_step()"},
    "tests/real/programs/realnvp_moons.py": {"log_prob()", "f()"},
    "tests/real/programs/nerf_tiny.py": {"run_one_iter_of_tinynerf()", "render_volume_density()"},
    "tests/real/programs/unet_dice.py": {"dice_coeff()"},
    "tests/real/programs/simclr.py": {"info_nce_loss()"},
    "tests/real/programs/ppo_cleanrl.py": {"get_action_and_value()"},
    "samples/lstm.py": set(),
    "samples/control_flow.py": set(),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_boxes_of_programs(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    called = Called(str(ROOT / program))
    with called.profiling():
        captured: Any = Run(parse_target(str(ROOT / program)), read_graph).captured()
    assert check(captured.result, called) == PROGRAMS[program]


def branches(x: Tensor) -> Tensor:
    """Calls that take other ways: nothing but the frame tells the second from the rest of the first."""

    def step(x: Tensor, i: int) -> Tensor:
        if i % 2 == 0:
            return x.exp()
        for _ in range(2):
            x = x.sin()
        return x

    for i in range(6):
        x = step(x, i)
    return x


def one_line(x: Tensor) -> Tensor:
    def square(x: Tensor) -> Tensor:
        return (x * x).cos()

    return sum(square(x) for _ in range(5))


def recursive(x: Tensor, left: int = 5) -> Tensor:
    x = x * 2
    return recursive(x, left - 1).sin().exp() if left else x


def with_generators(x: Tensor) -> Tensor:
    def values(x: Tensor) -> Iterator[Tensor]:
        for _ in range(3):
            x = x.exp()
            yield x

    def step(x: Tensor) -> Tensor:
        return sum(values(x)).sqrt()

    for _ in range(4):
        x = step(x)
    return x


def left_by_an_error(x: Tensor) -> Tensor:
    def risky(x: Tensor, i: int) -> Tensor:
        kept.append(x.exp())
        if i % 2:
            raise ValueError
        return x.sin()

    kept: list[Tensor] = []
    for i in range(6):
        try:
            x = risky(x, i)
        except ValueError:
            x = kept[-1] + x
    return x


def with_modules(x: Tensor) -> Tensor:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def residual(x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + net(x)
        return x

    for _ in range(5):
        x = residual(x)
    return x


def in_a_module(x: Tensor) -> Tensor:
    class Net(nn.Module):
        def gate(self, x: Tensor) -> Tensor:
            return x.sigmoid() * x if x.dim() > 1 else x

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(4):
                x = self.gate(x).exp()
            return x

    return Net()(x)


CASES = (branches, one_line, recursive, with_generators, left_by_an_error, with_modules, in_a_module)


@pytest.mark.parametrize("case", CASES)
def test_boxes_of_calls_that_only_their_frames_tell_apart(case: Callable[[Tensor], Tensor]) -> None:
    x = torch.rand(3, 3, requires_grad=True)
    called = Called(__file__)
    with gradviz.record() as recording, called.profiling():
        loss = (case(x) * 2).sum()
    assert check(recording.graph(loss), called) - {f"{case.__name__}()"} or case is recursive


def test_a_function_that_began_before_the_recording_is_no_box() -> None:
    def half_seen(x: Tensor) -> Tensor:
        for _ in range(9):
            x = x.sin()
        with gradviz.record() as recording:
            for _ in range(9):
                x = x.cos()
        graphs.append(recording.graph(x.sum()))
        return x

    graphs: list[Graph] = []
    half_seen(torch.rand(3, requires_grad=True))
    assert graphs[0].functions == ()


def test_nothing_is_told_of_calls_while_somebody_traces() -> None:
    before = sys.gettrace()

    def tracer(*_: object) -> None:
        return None

    def step(x: Tensor) -> Tensor:
        return x.sin().cos()

    x = torch.rand(3, requires_grad=True)
    with gradviz.record() as recording:
        x = step(x)
        sys.settrace(tracer)
        try:
            x = step(x)
        finally:
            sys.settrace(before)
    assert recording.graph(x.sum()).functions == ()


def test_no_mark_stays_on_a_frame() -> None:
    with gradviz.record():
        torch.rand(3, requires_grad=True).sin()
    assert sys._getframe().f_trace is None


def test_a_gradient_of_a_gradient_is_a_box() -> None:
    w = nn.Parameter(torch.rand(3))
    with gradviz.record() as recording:
        gradient = torch.autograd.grad((w.sin() * w).exp().sum(), w, create_graph=True)[0]
        loss = gradient.pow(2).sum()
    graph = recording.graph(loss, params={"w": w})
    assert any(name.startswith("grad() line") for name in names(graph))
    assert [call.gradient for call in graph.functions] == [True]


class Recursive(nn.Module):
    """Goes down a tree, as a network of trees does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])

    def forward(self, tree: list[Any], x: Tensor) -> Tensor:
        parts = [self.forward(child, x) for child in tree]
        return torch.tanh(self.layers(torch.stack(parts).sum(0) if parts else x))


def test_calls_of_a_function_that_calls_itself_are_numbered_alike() -> None:
    net, x = Recursive(), torch.randn(3, 4)
    with gradviz.record() as recording:
        loss = (net([[], [[], []]], x) + net([[], []], x)).sum()
    groups = recording.graph(loss, model=net).fold(depth=3).groups
    titles = [group.title for group in groups if group.title.startswith("forward()")]
    assert sorted(titles) == ["forward(), call 2", "forward(), call 5", "forward(), call 6"]
