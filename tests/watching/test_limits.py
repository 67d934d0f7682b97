"""What watching may take of a run: beyond it steps are only counted and looks left out, the page says so, and bits stay."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradviz
from gradviz.watching import steps
from tests.watching.test_watch import network, page, train

ENGINE = torch.autograd.graph._engine_run_backward


class Clock:
    """Each question takes 10 ms."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def limit(monkeypatch: pytest.MonkeyPatch, steps: float = 1e9, looks: float = 1e9) -> None:
    monkeypatch.setattr("gradviz.watching.steps.FREE", steps)
    monkeypatch.setattr("gradviz.watching.watch._FREE", looks)


def test_numbers_take_their_share_of_the_run_and_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, net = Clock(), network()
    monkeypatch.setattr("gradviz.watching.steps.time.perf_counter", clock)
    limit(monkeypatch, steps=0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer, every=10**9, out=tmp_path) as watch:
        meter = watch._meter
        assert meter is not None
        for _ in train(net, optimizer, 600):
            clock.now += 1
        once, allowed = 0.02, 0.1 + steps.SHARE * clock.now
        assert allowed - once <= meter.budget.spent <= allowed + once
    noted = [int(row["step"]) for row in csv.DictReader((tmp_path / "numbers.csv").open())]
    assert noted[:6] == [1, 2, 3, 4, 5, 6] and 200 < len(noted) < 300  # each takes 2 % of a step
    assert {later - earlier for earlier, later in pairwise(noted[20:])} == {2, 3}
    assert watch.steps == page(tmp_path)["count"] == 600
    assert f"{600 - len(noted)} steps only counted: noting the numbers" in page(tmp_path)["notes"][0]


def test_nothing_listens_while_steps_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, steps=-1e9)
    net, plain = network(), ENGINE.__code__
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer, every=10) as watch:
        listened = [ENGINE.__code__ is not plain for _ in train(net, optimizer, 24)]
    looked = [step for look in (1, 10, 20) for step in range(look, look + 3)]
    # what is there after a step is for the next one
    assert listened == [step + 1 in looked for step in range(1, 25)] and ENGINE.__code__ is plain
    assert watch.steps == 24 and [look.step for look in watch.looks] == [1, 10, 20]
    assert [step.step for step in watch.history.steps] == [1] and watch.numbers()["step"] == 1


@pytest.mark.parametrize("optimizers", [1, 2])
def test_the_numbers_of_some_steps_are_those_of_torch(optimizers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([False, False, True] * 100)
    monkeypatch.setattr(steps.Budget, "left", property(lambda budget: next(turns)))
    torch.manual_seed(0)
    net = nn.ModuleDict({"0": nn.Linear(3, 2), "1": nn.Linear(3, 2)})
    trained = [torch.optim.SGD(net[str(i)].parameters(), lr=0.1) for i in range(optimizers)]
    known: dict[tuple[int, str], tuple[float, float]] = {}
    with gradviz.watch(net, trained, every=10**9) as watch:
        for step in range(1, 20):
            for i, optimizer in enumerate(trained):
                optimizer.zero_grad()
                losses = [net[str(i)](torch.randn(4, 3)).square().mean() for _ in range(2)]
                for loss in losses:
                    loss.backward()
                norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in net[str(i)].parameters()])
                known[step, ("SGD", "SGD_2")[i]] = sum(loss.item() for loss in losses), norm.item()
                optimizer.step()
    found = watch.history.steps
    assert watch.steps == 19 and len({step.step for step in found}) in (7, 8) and {step.calls for step in found} == {2}
    for step in found:
        assert (step.loss, step.norm) == pytest.approx(known[step.step, step.optimizer], rel=1e-4)


def test_the_first_look_is_for_nothing_and_others_take_their_share(tmp_path: Path) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with gradviz.watch(net, optimizer, every=5, out=tmp_path) as watch:
        for step in train(net, optimizer, 20):
            if step in (2, 7):  # inside of looks
                watch._budget.spent = 1e12
    assert [look.step for look in watch.looks] == [1, 5]
    assert "3 looks left out: all after the first one may take 1 s and 0.2 % of the run" in page(tmp_path)["notes"]


def test_a_scaler_that_skips_while_steps_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, steps=-1e9)
    net = network()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with gradviz.watch(net, optimizer, every=10**9) as watch:
        for step in range(6):
            optimizer.zero_grad()
            loss = net(torch.randn(4, 6)).square().mean() * (float("inf") if step == 3 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert watch.steps == 6
