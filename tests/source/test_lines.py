"""Every node has the line that made it, or none: never a wrong one."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import gradviz
from gradviz.graph import Graph, SourceLine
from gradviz.packages import Place, is_foundation
from gradviz.recording.event_log import IntervalMap, NodeLog
from tests.walker.programs import Program


def run(text: str, path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    scope: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, str(path), "exec"), scope)
    return scope


def lines(graph: Graph) -> list[tuple[int, int | None]]:
    """Of each operation the line that it carries, and the recorded one."""
    made = [node for node in graph.nodes if node.op == "AddBackward0"]
    return [(node.attributes["alpha"], node.source.line if node.source else None) for node in made]


def outputs(kept: list[Any]) -> list[torch.Tensor]:
    return [value for value in kept if isinstance(value, torch.Tensor) and value.requires_grad]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(16), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(16, 40))])
def test_random_programs(seed: int, tmp_path: Path) -> None:
    with gradviz.record() as recording:
        scope = run(Program(seed).text, tmp_path / "script.py")
    found = lines(recording.graph(outputs(scope["kept"])))
    assert found
    assert [retained for retained, _ in found] == [recorded for _, recorded in found]


@pytest.mark.parametrize("seed", range(10))
def test_random_programs_with_threads(seed: int, tmp_path: Path) -> None:
    """Where two threads gave out one number the line is unknown; all others are right, the first of a new thread too."""
    with gradviz.record() as recording:
        scope = run(Program(seed, threads=True).text, tmp_path / "script.py")
    found = lines(recording.graph(outputs(scope["kept"])))
    assert all(recorded in (retained, None) for retained, recorded in found)


def test_a_thread_older_than_the_recording_never_gets_a_wrong_line() -> None:
    x = torch.ones(1, requires_grad=True)
    made: list[torch.Tensor] = []
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        made.append(x.sin())
        begun.set()
        go_on.wait(10)
        made.append(x.cos())

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(10)
    with gradviz.record() as recording:
        go_on.set()
        thread.join()
        x.sum().backward()  # type: ignore[no-untyped-call]
        made.append(x.tan())
    found = {node.op: node.source.text if node.source else None for node in recording.graph(made).nodes}
    assert found["SinBackward0"] is None and found["CosBackward0"] is None
    assert found["TanBackward0"] in (None, "made.append(x.tan())")


def test_a_debugger_that_begins_meanwhile(tmp_path: Path) -> None:
    """A trace function of the script's own changes no line, and keeps its place."""
    text = """
import sys, torch
x, seen = torch.ones(1, requires_grad=True), []
before = torch.add(x, x, alpha=4)
def trace(frame, event, argument):
    seen.append(event)
    return trace
outer = sys.gettrace()
sys.settrace(trace)
def double(x):
    x = torch.add(x, x, alpha=11)
    return torch.add(x, x, alpha=12)
y = double(before)
mine = sys.gettrace() is trace
sys.settrace(outer)
kept = [torch.add(y, y, alpha=16)]
"""
    with gradviz.record() as recording:
        scope = run(text, tmp_path / "script.py")
    assert lines(recording.graph(scope["kept"])) == [(16, 16), (12, 12), (11, 11), (4, 4)]
    assert scope["mine"] and "line" in scope["seen"]


def test_a_trace_function_from_before_goes_on() -> None:
    seen: list[str] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "work":
            seen.append(event)
        return trace

    def work() -> torch.Tensor:
        return torch.ones(1, requires_grad=True).exp()

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with gradviz.record():
            work()
        assert sys.gettrace() is trace and seen == ["call", "line", "return"]
    finally:
        sys.settrace(before)


# -- whose line --------------------------------------------------------------------------------------------------------

LIBRARY = """
import torch

class Block(torch.nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        if self.inner is not None:
            x = self.inner(x)
        return helper(x)

def helper(x):
    return torch.add(x, x, alpha=15)

def apply(function, x):
    return function(x)
"""

SCRIPT = """
import torch
from nets.blocks import Block, apply, helper

class Mine(torch.nn.Module):
    def forward(self, x):
        x = torch.add(x, x, alpha=7)
        return Block()(x)

x = torch.ones(1, requires_grad=True)
kept = [
    helper(x),
    Block(Block())(x),
    Block(Mine())(x),
    apply(lambda x: torch.add(x, x, alpha=15), x),
]
"""


def test_behind_a_librarys_line_stands_the_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "site-packages"
    (packages / "nets").mkdir(parents=True)
    (packages / "nets" / "blocks.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(packages))
    with gradviz.record() as recording:
        kept = run(SCRIPT, tmp_path / "script.py")["kept"]
    for name in ("nets", "nets.blocks"):
        monkeypatch.delitem(sys.modules, name)

    def found(output: torch.Tensor) -> list[tuple[str, int, int | None]]:
        nodes = recording.graph(output).nodes
        sources = [(node.source, node.script_line) for node in nodes if node.source is not None]
        return [(source.package, source.line, script.line if script else None) for source, script in sources]

    assert found(kept[0]) == [("nets", 15, 12)]
    assert found(kept[1]) == [("nets", 15, 13), ("nets", 15, 13)]
    assert found(kept[2]) == [("nets", 15, 14), ("nets", 15, 8), ("", 7, None)]
    assert found(kept[3]) == [("", 15, None)]
    text = [node.script_line.text for node in recording.graph(kept[0]).nodes if node.script_line]
    assert text == ["helper(x),"]


def test_who_is_the_user() -> None:
    assert not is_foundation("/home/me/train.py")
    assert not is_foundation("/site-packages/transformers/model.py")
    assert not is_foundation("<stdin>")
    assert is_foundation("/site-packages/torch/nn/linear.py")
    assert not is_foundation("/site-packages/torchvision/models/resnet.py")
    assert is_foundation("<frozen importlib._bootstrap>")
    assert is_foundation("<eval_with_key>.3")
    assert is_foundation(threading.__file__)
    assert not is_foundation(pytest.__file__)


# -- the log -----------------------------------------------------------------------------------------------------------


def test_what_nobody_saw_has_no_line() -> None:
    log, first, second = NodeLog[Place](2), Place(SourceLine("a.py", 1)), Place(SourceLine("a.py", 2))
    for number, place in ((2, first), (3, first), (6, first), (4, second), (7, second)):
        log.made(number, place)
    log.until(9, first)
    expected = [None, first, first, None, None, first, second, first, None]
    assert [log.at(number) for number in range(1, 10)] == expected


def test_a_note_that_an_interrupt_left_half_done_is_written_over() -> None:
    steps: IntervalMap[str] = IntervalMap(0)
    steps.add(0, "a")
    steps.values.append("half")
    steps.add(1, "b")
    steps.add(2, "c")
    assert [steps.at(number) for number in range(3)] == ["a", "b", "c"]
