"""`Run` as commands use it: a callback that reads live tensors, and a recorder around the script."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch

from gradviz.errors import GradvizError, NoGraphError, ScriptError
from gradviz.graph import Graph
from gradviz.run.outputs import LiveOutputs
from gradviz.run.reading import read_graph
from gradviz.run.run import Run
from gradviz.run.target import Target, parse_target
from tests.cli.scripts import TRAINING, script
from tests.run.running import run_target


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _script(folder: Path) -> Target:
    return Target("script", str(script(folder, TRAINING)))


def test_the_default_reads_the_graph(tmp_path: Path) -> None:
    captured = run_target(script(tmp_path, TRAINING))
    assert isinstance(captured.result, Graph)
    assert captured.result.title == "script.py: loss.backward() at script.py:10, call 1"
    assert captured.target.title == "script.py"
    assert captured.failure is None
    captured.raise_failure()


@pytest.mark.slow
def test_read_gets_live_tensors_that_die_with_the_script(tmp_path: Path) -> None:
    watched: list[weakref.ref[object]] = []

    def read(live: LiveOutputs) -> list[str]:
        assert isinstance(live.outputs, torch.Tensor) and live.outputs.grad_fn is not None
        assert live.variables[0]["loss"] is live.outputs
        assert live.variables[-1]["__name__"] == "__main__"
        watched.extend([weakref.ref(live.outputs), weakref.ref(live.variables[0]["x"])])
        return sorted(live.variables[0])

    captured = Run(_script(tmp_path), read).captured()
    gc.collect()
    assert captured.result == ["loss", "step", "steps", "x"]
    assert [reference() for reference in watched] == [None, None]


@pytest.mark.parametrize("target", ["script.py", "script.py:loss"])
def test_an_error_of_read_is_not_the_users_to_catch(tmp_path: Path, target: str) -> None:
    script(
        tmp_path,
        """
        import torch
        loss = torch.ones(1, requires_grad=True) * 2
        try:
            loss.backward()
        except Exception as error:
            raise SystemExit("swallowed")
        """,
    )

    def read(live: LiveOutputs) -> None:
        raise NoGraphError("from read")

    with pytest.raises(NoGraphError, match="from read"):
        Run(parse_target(target), read).captured()


def test_modules_and_lines_are_recorded(tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "loss =" in text)
    graph = run_target(path, at=2).result
    assert graph.attribution == "recorded"
    assert {(scope.path, scope.type) for scope in graph.scopes} == {("model", "Linear")}
    made = {node.op: node.source for node in graph.nodes if node.source is not None}
    assert {source.line for source in made.values()} == {line}
    assert {source.file for source in made.values()} == {str(path)}
    assert set(made) >= {"MulBackward0", "SumBackward0", "PowBackward0", "AddmmBackward0"}


def test_recording_ends_with_the_script_however_it_ends(tmp_path: Path) -> None:
    before = sys.gettrace(), torch.nn.modules.module._global_forward_hooks.copy()
    for text in (TRAINING, "1 / 0\n", "raise SystemExit(1)\n"):
        with contextlib.suppress(ScriptError):
            run_target(script(tmp_path, text))
        assert (sys.gettrace(), torch.nn.modules.module._global_forward_hooks) == before


def test_a_failure_after_the_capture_is_kept_for_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captured = run_target(script(tmp_path, TRAINING + "    1 / 0\n"), keep_going=True)
    assert len(captured.result.roots) == 1
    assert capsys.readouterr().err == ""
    with pytest.raises(ScriptError):
        captured.raise_failure()
    assert capsys.readouterr().err.endswith("ZeroDivisionError: division by zero\n")


def test_the_script_computes_what_it_computes_alone(tmp_path: Path) -> None:
    text = (
        TRAINING.replace("model =", "torch.manual_seed(0)\nmodel =") + "    torch.save(model.weight.grad, 'grad.pt')\n"
    )
    path = script(tmp_path, text)
    exec(compile(text, "alone", "exec"), {"__name__": "__main__"})
    alone = torch.load(tmp_path / "grad.pt")
    run_target(path, keep_going=True)
    assert torch.equal(torch.load(tmp_path / "grad.pt"), alone)


@pytest.mark.parametrize(
    ("error", "told"),
    [(GradvizError("no room"), "no room"), (KeyError("lost"), "KeyError: 'lost'")],
    ids=["ours", "any"],
)
def test_what_was_read_is_kept_when_a_later_call_cannot_be_read(tmp_path: Path, error: Exception, told: str) -> None:
    calls = iter(range(1, 4))

    def read(live: LiveOutputs) -> int:
        call = next(calls)
        if call == 3:
            raise error
        return call

    captured = Run(_script(tmp_path), read, steps=3).captured()
    assert (captured.result, captured.later) == (1, (2,))
    assert captured.unread == f"backward call 3 could not be read: {told}"


SMALL_STEPS = """
import os, sys
import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ours = []

def look(frame, event, _):
    if event == "call" and "/gradviz/" in frame.f_code.co_filename.replace(os.sep, "/"):
        ours.append(frame.f_code.co_name)

for step in range(4):
    if step == 1:
        sys.setprofile(look)
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
sys.setprofile(None)
hooks = torch.nn.modules.module
state = len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks), torch.is_anomaly_enabled()
"""


def test_after_the_first_read_nothing_of_gradviz_runs_in_a_step(tmp_path: Path) -> None:
    target = parse_target(str(script(tmp_path, SMALL_STEPS)))
    seen: list[object] = []
    Run(
        target, read_graph, keep_going=True, ended=lambda spaces: seen.extend((spaces[0]["ours"], spaces[0]["state"]))
    ).captured()
    assert seen == [[], (0, 0, False)]


@pytest.mark.slow
def test_a_call_far_into_a_run_is_read_with_its_lines_and_the_calls_before_are_forgotten(tmp_path: Path) -> None:
    text = TRAINING.replace("train(3)", "train(2000)")
    held: list[int] = []

    def read(live: LiveOutputs) -> Graph:
        assert live.recording is not None
        held.append(max(len(log.calls.numbers) for log in live.recording._running().ends()))
        return read_graph(live)

    graph = Run(parse_target(str(script(tmp_path, text))), read, at=1950).captured().result
    assert held[0] < 1500
    assert {node.scope is None for node in graph.nodes if node.op.startswith("Addmm")} == {False}
