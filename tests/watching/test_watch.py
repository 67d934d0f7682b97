"""`gradviz.watch`: a run is the same bits with it and without, its numbers are those of torch, and nothing stays behind."""

from __future__ import annotations

import csv
import gc
import logging
import math
import random
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradviz
from gradviz.errors import GradvizError, WatchError
from tests.cli.scripts import python, script


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


Losses = Callable[[int, torch.Tensor], torch.Tensor]


def train(net: nn.Module, optimizer: Any, steps: int, change: Losses = lambda step, loss: loss) -> Iterator[int]:
    """A plain loop that yields after each step."""
    for step in range(1, steps + 1):
        batch = torch.randn(4, 6)
        loss = change(step, net(batch).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step


def run(
    net: nn.Module, steps: int, change: Losses = lambda step, loss: loss, **options: Any
) -> gradviz.watching.watch.Watch:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer, **options) as watch:
        for _ in train(net, optimizer, steps, change):
            pass
    return watch


def state(watched: bool, out: Path) -> list[Any]:
    """Everything that 50 steps leave: parameters, moments, and the states of random number generators."""
    net = network()
    random.seed(0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    if watched:
        with gradviz.watch(net, optimizer, every=10, out=out):
            *_, _ = train(net, optimizer, 50)
    else:
        *_, _ = train(net, optimizer, 50)
    moments = [value for moment in optimizer.state.values() for value in moment.values()]
    return [*(parameter.detach() for parameter in net.parameters()), *moments, torch.get_rng_state(), random.getstate()]


def test_a_watched_run_is_the_same_bits(tmp_path: Path) -> None:
    for plain, watched in zip(state(False, tmp_path), state(True, tmp_path)):
        assert torch.equal(plain, watched) if isinstance(plain, torch.Tensor) else plain == watched


def test_the_numbers_are_those_of_torch(tmp_path: Path) -> None:
    net = network()
    optimizer, known = torch.optim.SGD(net.parameters(), lr=0.05), []
    losses: list[float] = []
    with gradviz.watch(net, optimizer, every=7, out=tmp_path) as watch:
        for _ in train(net, optimizer, 23, lambda step, loss: (losses.append(loss.item()), loss)[1]):
            known.append(
                {
                    name: float(torch.cat([p.grad.flatten() for p in net[int(name)].parameters()]).norm())
                    for name in "035"
                }
            )
    rows = list(csv.DictReader((tmp_path / "numbers.csv").open()))
    assert [int(row["step"]) for row in rows] == [*range(1, 24)] and {row["backward_calls"] for row in rows} == {"1"}
    for row, loss, norms in zip(rows, losses, known):
        assert float(row["loss"]) == pytest.approx(loss, rel=1e-5)
        assert {name: float(row[name]) for name in "035"} == pytest.approx(norms, rel=1e-4)
        assert float(row["grad_norm"]) == pytest.approx(math.hypot(*norms.values()), rel=1e-4)
    assert watch.numbers()["loss"] == pytest.approx(losses[-1], rel=1e-5) and watch.numbers()["step"] == 23
    assert [look.step for look in watch.looks] == [1, 7, 14, 21]
    assert {(look.nodes, look.changes) for look in watch.looks} == {(len(watch.looks[0].graph.nodes), "")}


def test_steps_between_looks_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    optimizer, waits = torch.optim.SGD(net.parameters(), lr=0.05), []
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor, name, lambda *given, of=original, name=name: (waits.append(name), of(*given))[1]
        )
    with gradviz.watch(net, optimizer, every=100):
        for step in train(net, optimizer, 90):
            if step == 5:
                assert waits  # the look at step 1 reads numbers
                waits.clear()
        assert not waits


def test_nothing_is_kept() -> None:
    net = network()
    watch = run(net, 12, every=5)
    kept = [weakref.ref(module) for module in net.modules()] + [
        weakref.ref(parameter) for parameter in net.parameters()
    ]
    del net
    gc.collect()
    assert [ref() for ref in kept if ref() is not None] == [] and watch.steps == 12


def test_memory_is_flat_while_it_runs() -> None:
    net = network()
    optimizer, counts = torch.optim.SGD(net.parameters(), lr=0.05), []
    with gradviz.watch(net, optimizer, every=1000):
        for step in train(net, optimizer, 900):
            if step in (450, 850):  # with as many rows waiting
                gc.collect()
                counts.append(sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()))
    assert counts[1] <= counts[0]  # fewer: garbage of earlier tests


def test_nan_shows_the_steps_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gradviz"):
        watch = run(network(), 260, lambda step, loss: loss * math.nan if step == 245 else loss, every=50, out=tmp_path)
    assert watch.history.broken is not None and watch.history.broken.step == 245
    assert [step.step for step in watch.history.before] == [*range(46, 246)]
    assert "the loss is nan at step 245 (losses: " in caplog.text


def test_raise_on_stops_at_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    with pytest.raises(WatchError, match=r"the loss is nan at step 12 .*\nsee .*index.html"):
        run(
            network(),
            60,
            lambda step, loss: loss * math.nan if step == 12 else loss,
            every=20,
            raise_on="error",
            out=tmp_path,
        )
    assert "ended by WatchError" in page(tmp_path)["ended"]


def test_raise_on_stops_at_a_finding() -> None:
    net = nn.ModuleDict({"used": nn.Linear(2, 1), "spare": nn.Linear(2, 1)})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with (
        pytest.raises(WatchError, match=r"step 1: .*spare[^\0]*fix: "),
        gradviz.watch(net, optimizer, raise_on="warning"),
    ):
        for _ in range(5):
            net["used"](torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert optimizer.state_dict()["param_groups"]


def test_an_exception_of_the_loop_is_not_replaced() -> None:
    net = nn.ModuleDict({"used": nn.Linear(2, 1), "spare": nn.Linear(2, 1)})
    with pytest.raises(ZeroDivisionError), gradviz.watch(net, raise_on="note") as watch:
        net["used"](torch.ones(1, 2)).sum().backward()
        raise ZeroDivisionError("no steps")
    assert watch.findings and watch.page.ended == "ended by ZeroDivisionError: no steps"


def test_several_processes_write_into_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(network(), 2, out=tmp_path).out == str(tmp_path / "rank1")
    assert (tmp_path / "rank1" / "index.html").exists() and not (tmp_path / "index.html").exists()


def test_a_compiled_model_is_compiled_once() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    net = torch.compile(network(), backend="eager")
    watch = run(net, 7, every=3)
    assert counters["stats"]["unique_graphs"] == 1 and [look.step for look in watch.looks] == [1, 3, 6]
    torch._dynamo.reset()


def test_a_look_finds_a_graph_that_grows() -> None:
    net, total = network(), torch.zeros(())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer, every=10) as watch:
        for step in range(1, 36):
            loss = net(torch.randn(4, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss if step > 5 else total
    assert [look.step for look in watch.looks if look.findings] == [10, 20, 30]
    assert "total keeps every earlier graph alive" in watch.findings[0].summary


def page(folder: Path) -> dict[str, Any]:
    """The data of a page."""
    import base64
    import json
    import re
    import zlib

    found = re.search(r'id="data">([^<]+)<', (folder / "index.html").read_text())
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found[1])))
    return data


def test_an_exception_ends_it_and_the_page_says_so(tmp_path: Path) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with pytest.raises(ZeroDivisionError), gradviz.watch(net, optimizer, every=5, out=tmp_path):
        for step in train(net, optimizer, 10):
            step // (step - 8)
    assert page(tmp_path)["ended"].startswith("ended by ZeroDivisionError") and len(page(tmp_path)["steps"]) == 8


def test_without_a_backward_it_says_that_no_step_was_seen(tmp_path: Path) -> None:
    with gradviz.watch(network(), out=tmp_path) as watch:
        pass
    assert watch.numbers() == {"step": 0.0} and "call watch.step()" in page(tmp_path)["notes"][0]


def test_one_watch_at_a_time() -> None:
    net = network()
    with gradviz.watch(net) as watch, pytest.raises(GradvizError, match="another watch is open"), gradviz.watch(net):
        pass
    with pytest.raises(GradvizError, match="used already"), watch:
        pass
    with gradviz.watch(net):
        pass


@pytest.mark.parametrize("options", [{"every": 0}, {"raise_on": "fatal"}])
def test_options_are_checked(options: Any) -> None:
    with pytest.raises(GradvizError):
        gradviz.watch(network(), **options)


def test_in_a_thread() -> None:
    done = []
    thread = threading.Thread(target=lambda: done.append(run(network(), 12, every=5)))
    thread.start()
    thread.join()
    (watch,) = done
    assert watch.steps == 12 and [look.step for look in watch.looks] == [1, 5, 10]


def test_steps_of_other_threads_are_counted_apart(tmp_path: Path) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer, out=tmp_path) as watch:
        thread = threading.Thread(target=lambda: [*train(net, optimizer, 3)])
        thread.start()
        thread.join()
    assert watch.steps == 0 and "3 optimizer steps in other threads" in page(tmp_path)["notes"][0]


def test_autocast_and_a_scaler_that_skips_steps() -> None:
    net = network()
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.05), torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses, norms = [], []
    with gradviz.watch(net, optimizer, every=4) as watch:
        for step in range(1, 9):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = net(torch.randn(4, 6)).square().mean()
            losses.append(loss.item())
            scaler.scale(loss * (math.inf if step == 6 else 1)).backward()
            scaler.unscale_(optimizer)
            norms.append(torch.nn.utils.get_total_norm([parameter.grad for parameter in net.parameters()]).item())
            scaler.step(optimizer)
            scaler.update()
    steps = watch.history.steps
    assert [step.skipped for step in steps] == [step == 6 for step in range(1, 9)] and watch.history.broken is None
    for step, loss, norm in zip(steps, losses, norms):
        if not step.skipped:
            assert step.loss == pytest.approx(loss, rel=1e-2) and step.norm == pytest.approx(norm, rel=1e-3)


def test_two_optimizers_take_one_step_together() -> None:
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    both = nn.ModuleDict({"maker": maker, "judge": judge})
    first, second = torch.optim.Adam(judge.parameters()), torch.optim.SGD(maker.parameters(), lr=0.1)
    with gradviz.watch(both, [first, second], every=3) as watch:
        for _ in range(7):
            first.zero_grad()
            judge(maker(torch.randn(4, 2)).detach()).mean().backward()
            first.step()
            second.zero_grad()
            (-judge(maker(torch.randn(4, 2))).mean()).backward()
            second.step()
    assert watch.steps == 7 and [step.optimizer for step in watch.history.steps] == ["Adam", "SGD"] * 7
    assert {"Adam/loss", "SGD/loss", "SGD/grad_norms/maker"} <= watch.numbers().keys()
    assert [look.step for look in watch.looks] == [1, 3, 6] and {one.severity for one in watch.findings} <= {"note"}


def test_the_loss_of_a_step_is_the_sum_of_its_backward_calls() -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer) as watch:
        for _ in range(3):
            losses = [net(torch.randn(2, 6)).square().mean() / 4 for _ in range(4)]
            for loss in losses:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watched = watch.numbers()["loss"]
            assert watched == pytest.approx(sum(loss.item() for loss in losses), rel=1e-5)
    assert watch.history.steps[0].calls == 4


def test_a_closure_computes_the_gradients_of_its_step() -> None:
    net = network()
    optimizer, norms = torch.optim.SGD(net.parameters(), lr=0.05), []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.randn(4, 6)).square().mean()
        loss.backward()
        norms.append(torch.nn.utils.get_total_norm([parameter.grad for parameter in net.parameters()]).item())
        return loss

    with gradviz.watch(net, optimizer, every=2) as watch:
        for _ in range(5):
            optimizer.step(closure)
    assert [step.norm for step in watch.history.steps] == pytest.approx(norms, rel=1e-4)
    assert [look.step for look in watch.looks] == [1, 2, 4]


def test_steps_by_hand() -> None:
    net = network()
    with gradviz.watch(net, every=2) as watch:
        for _ in range(5):
            net(torch.randn(4, 6)).square().mean().backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
            watch.step()
    assert watch.steps == 5 and {step.optimizer for step in watch.history.steps} == {"by hand"}


def test_sparse_gradients_are_left_out_of_the_norms() -> None:
    net = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer) as watch:
        net(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    (step,) = watch.history.steps
    assert step.norms[watch.history.modules.index("0")] is None and step.norms[watch.history.modules.index("1")]


def test_a_watch_survives_a_look_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **options: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("gradviz.checks.collect.collector.Collector.read", fail)
    watch = run(network(), 5, every=2, out=tmp_path)
    assert watch.steps == 5 and not watch.looks and "no such luck" in page(tmp_path)["notes"][-1]


def test_a_full_disk_does_not_end_the_run(tmp_path: Path) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer, every=3, out=tmp_path) as watch:
        for step in train(net, optimizer, 8):
            if step == 4:
                (tmp_path / "numbers.csv").unlink()
                (tmp_path / "numbers.csv").mkdir()
    assert watch.steps == 8 and "not complete: IsADirectoryError" in " ".join(page(tmp_path)["notes"])


LOOP = """
import os, signal, torch, gradviz
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with gradviz.watch(net, optimizer, every=10, out="run"):
    for step in range(1, 100):
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        if step == 47:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_process_loses_one_interval(tmp_path: Path) -> None:
    done = python(script(tmp_path, LOOP), cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert [look["step"] for look in page(tmp_path / "run")["looks"]] == [1, 10, 20, 30, 40]
    rows = list(csv.DictReader((tmp_path / "run" / "numbers.csv").open()))
    assert [int(row["step"]) for row in rows] == [*range(1, 40)]


def test_history_is_bounded_and_peaks_stay() -> None:
    watch = run(network(), 4300, lambda step, loss: loss * 1000 if step == 17 else loss, every=10_000)
    steps = [step.step for step in watch.history.steps]
    assert len(steps) <= 2000 and steps == sorted(steps) and steps[-200:] == [*range(4101, 4301)]
    assert 17 in steps


def test_a_run_without_a_step_says_so_in_the_log_and_on_the_page(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = network()
    with gradviz.watch(net, out=tmp_path) as watch:
        net(torch.ones(1, 6)).sum().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1
    assert watch.steps == 0 and [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no step of an optimizer" in caplog.text and "call watch.step()" in caplog.text
    assert any("call watch.step() after each update" in note for note in page(tmp_path)["notes"])


@pytest.mark.parametrize(("swapped", "every", "builtin"), [(False, 0, ValueError), (True, 100, TypeError)])
def test_what_cannot_be_watched_is_an_error_of_ours_and_the_builtin(
    swapped: bool, every: int, builtin: type[Exception]
) -> None:
    net: Any = network()
    given = [net, torch.optim.SGD(net.parameters(), lr=0.1)]
    with pytest.raises(builtin) as raised:
        gradviz.watch(*given[:: -1 if swapped else 1], every=every)
    assert isinstance(raised.value, GradvizError)


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "w2.py"
    path.write_text("x = 1\n")
    with (
        pytest.raises(OSError, match=r"w2\.py': is a file; give a folder") as raised,
        gradviz.watch(network(), out=path),
    ):
        pass
    assert isinstance(raised.value, GradvizError) and path.read_text() == "x = 1\n"
    assert run(network(), 2).steps == 2  # nothing stays open
