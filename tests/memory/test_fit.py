"""`gradviz fit`: the predicted peak is what torch's own tracker counts, and the script's folder stays as it was."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.fit import MODELS, WITHIN, counted, predicted
from gradviz.graph import Graph
from gradviz.memory.fit.changes import _plan, changes
from gradviz.memory.fit.child import Batch
from gradviz.memory.fit.prediction import Prediction, _told, largest_batch
from gradviz.memory.fit.runs import ChildFailed, Folder, Specification, copied_folder
from gradviz.memory.fit.table import fit_table
from gradviz.memory.fit.trace import Allocation, Call, Forecast, Trace, one_run, two_runs
from gradviz.memory.wrapped import apply_checkpoints
from gradviz.recording.record import record
from gradviz.report.results import console
from gradviz.run.program import Target
from gradviz.wording import bytes_text
from tests.walker.graphs import needs_raw

QUICK = [
    "MLP, AdamW",
    "MLP, SGD",
    "MLP, Adam by foreach",
    "GRU",
    "GPT",
    "GPT, checkpointed",
    "contrastive",
    "loop over samples",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_larger_batch_takes_what_was_predicted(name: str) -> None:
    pytest.importorskip("torch.distributed._tools.mem_tracker")
    ours, theirs = predicted(MODELS[name]).peak(32), counted(MODELS[name], 32)
    assert abs(ours - theirs) <= WITHIN * theirs


def graph_of(name: str) -> Graph:
    """A step of a model, as a child reads it."""
    net, _, loss = MODELS[name]()
    with record() as recording:
        return recording.graph(loss(16), model=net)


@pytest.mark.parametrize("share", [0.8, 0.6])
@needs_raw
def test_a_checkpoint_saves_what_was_said(share: float) -> None:
    """The plan of the one planner, replayed and applied to the model."""
    plain, graph = predicted(MODELS["GPT"]), graph_of("GPT")
    limit = int(share * plain.peak(32))
    saving = changes(plain, graph, 32, limit, None)[0]

    def planned() -> Any:
        net, optimizer, loss = MODELS["GPT"]()
        apply_checkpoints(net, _plan(plain, graph, 32, limit))
        return net, optimizer, loss

    assert saving.what.startswith("checkpoint")
    assert abs(saving.peak - counted(planned, 32)) <= 0.03 * saving.peak


# -- traces made by hand -----------------------------------------------------------------------------------------------


def trace(shapes: Sequence[tuple[int, ...]], events: Sequence[int], kinds: Sequence[str] = ()) -> Trace:
    """Storages of bytes that one line makes in a forward pass of one module, and two backwards and a step after it."""
    storages = [
        Allocation(int(np.prod(shape)), 1, shape, "cpu", int(events.index(i) >= 3), 0, 0, f"op{i}", kind)
        for i, (shape, kind) in enumerate(zip(shapes, kinds or [""] * len(shapes)))
    ]
    call = Call("block", "Block", -1, 0, 2, 3, [])
    return Trace(storages, np.array(events), [(0, "forward"), (3, "backward")], [None], [call], 1)


def lines(small: Sequence[tuple[int, ...]], large: Sequence[tuple[int, ...]], events: Sequence[int]) -> Forecast:
    return two_runs(trace(small, events), trace(large, events), (4, 8), 1)


def test_each_dimension_is_a_line_of_its_own() -> None:
    sizes = lines([(4, 4), (10,), (9, 5)], [(8, 8), (10,), (17, 5)], [0, 1, 2])
    assert sizes.nbytes(16).tolist() == [16 * 16, 10, 33 * 5]


def test_the_peak_moves_with_the_batch() -> None:
    sizes = lines([(100,), (4,)], [(100,), (8,)], [0, ~0, 1, ~1])
    assert [sizes.peak(batch) for batch in (1, 100, 101, 500)] == [100, 100, 101, 500]
    assert (largest_batch(sizes, 300), largest_batch(sizes, 99)) == (300, 0)


def test_tensors_made_in_a_loop_are_counted() -> None:
    def samples(count: int) -> Trace:
        one = trace([(3,)] * count, list(range(count)))
        return replace(one, storages=[storage._replace(op="op", phase=0) for storage in one.storages])

    sizes = two_runs(samples(4), samples(8), (4, 8), 1)
    assert (sizes.uneven, sizes.peak(40)) == (8, 120)


def test_kinds_tell_what_backward_finds() -> None:
    sizes = one_run(trace([(1,), (2,), (3,)], [0, 1, ~1, 2, ~0]), 1)
    assert list(sizes.kinds) == ["activations", "temporary", "temporary"]


def test_blocks_of_the_allocator_are_whole() -> None:
    assert one_run(trace([(1,), (513,)], [0, 1]), 512).peak(0) == 3 * 512


def test_events_can_be_inserted_and_dropped() -> None:
    sizes = one_run(trace([(5,), (7,)], [0, 1, ~1, ~0]), 1)
    changed = sizes.changed([(1, ~0), (3, 0)], {3})
    assert changed.trace.events.tolist() == [0, ~0, 1, ~1, 0]
    assert changed.trace.phases == [(0, "forward"), (4, "backward")]
    assert (sizes.peak(0), changed.peak(0)) == (12, 7)


# -- what is told ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> Prediction:
    forecast = predicted(MODELS["GPT"])
    limit = 2**20
    found = changes(forecast, graph_of("GPT"), 32, limit, lambda other: largest_batch(other, limit))
    return Prediction(forecast, 32, 32, limit, limit, largest_batch(forecast, limit), "", found, ["a note"])


def test_gradients_that_outlive_a_step_can_be_freed() -> None:
    """The second backward is shorter than the first, as that of a penalty is; the gradient is there again at its end."""
    made = trace([(5,), (50,), (9,), (1,)], [0, 1, ~1, 2, 3, ~3, 0], ["", "", "gradients", ""])
    made = replace(made, events=np.array([0, 1, ~1, 2, ~0, 1, ~1, 3]))
    made = replace(made, phases=[(0, "forward"), (1, "backward"), (4, "step"), (5, "forward"), (7, "backward")])
    found = {saving.what: saving for saving in changes(one_run(made, 1), None, 0, 0, None)}
    assert [(saving.peak, saving.saves) for what, saving in found.items() if "set_to_none" in what] == [(55, 4)]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_tables_fit_the_terminal(told: Prediction, width: int) -> None:
    stream = io.StringIO()
    console(stream, width=width).print(fit_table(told))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert f"at batch 32: does not fit in {bytes_text(told.memory)}" in " ".join(lines[0].split())
    assert any(line.split()[:1] == ["activations"] for line in lines)


@needs_raw
def test_the_cheapest_change_comes_first_and_each_saves(told: Prediction) -> None:
    costs = [change.cost for change in told.changes]
    assert costs[0].startswith("recomputes ") and costs[1:] == ["smaller kernels", "trains differently"]
    assert all(change.saves > 0 and change.peak + change.saves == told.peak.total for change in told.changes)


def test_out_of_memory_goes_on_with_fake_tensors() -> None:
    class NoMemory(Folder):
        def run(self, wanted: Sequence[Specification]) -> list[dict[str, Any]]:
            if not all(one.fake for one in wanted):
                raise ChildFailed("RuntimeError: DefaultCPUAllocator: can't allocate memory")
            return [{"met": True} for _ in wanted]

    _, _, wanted = _told(NoMemory(Path("nowhere"), {}), Specification(Target("script", "train.py"), ()), False)
    assert wanted.fake


# -- the batch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected", "now"),
    [
        (["--bs", "32", "-v"], ["--bs", "4", "-v"], 32),
        (["--bs=32"], ["--bs=4"], 32),
        (["-v"], ["-v", "--bs", "4"], None),
    ],
)
def test_an_option_is_replaced_or_added(given: list[str], expected: list[str], now: int | None) -> None:
    batch = Batch("--bs", 4)
    assert (batch.arguments(given), batch.now) == (expected, now)


@pytest.mark.parametrize(
    "source",
    ["bs = 32", "bs: int = 32", "def f(a, bs=32): return bs\nbs = f(0)", "def f(*, bs=32): return bs\nbs = f()"],
)
def test_a_name_that_is_assigned_is_replaced(source: str) -> None:
    batch, found = Batch("bs", 4), {"__name__": "script"}
    exec(compile(batch.assigned(source.encode()), "script.py", "exec"), found)
    assert (found["bs"], batch.now in (32, 4), batch.met) == (4, True, True)


# -- the folder --------------------------------------------------------------------------------------------------------


def test_what_is_linked_and_changed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.txt").write_text("one")
    (tmp_path / ".venv").mkdir()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.txt").write_text("two")
    with copied_folder() as folder:
        (folder.path / "inner" / "deep.txt").write_text("changed")
        (folder.path / "small.txt").unlink()
        assert folder.changed() == []
        (folder.path / ".venv" / "new").write_text("through the link")
        assert [os.path.basename(path) for path in folder.changed()] == [".venv"]
    assert (tmp_path / "small.txt").read_text() == "one"
    assert (tmp_path / "inner" / "deep.txt").read_text() == "two"
    assert not folder.path.exists()
