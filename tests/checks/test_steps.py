"""What the code does from one backward call to the next: scripts that forget to reset or to update, and those that seem to."""

from __future__ import annotations

import gc
import textwrap
import weakref
from pathlib import Path

import pytest
import torch

from gradviz.checks.collect.ledger import Ledger
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Interval
from gradviz.cli.main import cli
from tests.checks.test_scripts import check, written
from tests.command_line import CliRunner

MODEL = """
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.ones(2, 3)
"""


def found_in(text: str, folder: Path, *options: str) -> list[dict[str, str]]:
    found, _ = check(written(folder, MODEL + textwrap.dedent(text)), *options)
    return [one for one in found if one["severity"] != "note"]


WRONG = {
    "a fused optimizer": (
        "gradient-not-reset",
        """
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for step in range(3):
            model(data).sum().backward()
            optimizer.step()
        """,
    ),
    "a fused optimizer after the reset": (
        "no-update",
        """
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for step in range(3):
            model(data).sum().backward()
            optimizer.zero_grad()
            optimizer.step()
        """,
    ),
    "an update by hand": (
        "gradient-not-reset",
        """
        w = torch.ones(3, requires_grad=True)
        for step in range(3):
            (w * data).sum().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
        """,
    ),
    "an optimizer of one's own that writes to data": (
        "gradient-not-reset",
        """
        class Mine(torch.optim.Optimizer):
            def step(self):
                for group in self.param_groups:
                    for one in group["params"]:
                        one.data.sub_(0.1 * one.grad)
        mine = Mine(model.parameters(), {})
        for step in range(3):
            model(data).sum().backward()
            mine.step()
        """,
    ),
    "clipped and never reset": (
        "gradient-not-reset",
        """
        for step in range(3):
            model(data).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        """,
    ),
    "two networks, and the wrong optimizer is reset": (
        "gradient-not-reset",
        """
        critic = torch.nn.Linear(1, 1)
        second = torch.optim.Adam(critic.parameters())
        for step in range(3):
            optimizer.zero_grad()
            critic(model(data).detach()).sum().backward()
            second.step()
            optimizer.zero_grad()
            critic(model(data)).sum().square().backward()
            optimizer.step()
        """,
    ),
    "a gradient of a gradient between": (
        "gradient-not-reset",
        """
        for step in range(3):
            x = data.clone().requires_grad_()
            y = model(x).square().sum()
            (slope,) = torch.autograd.grad(y, x, create_graph=True)
            (y + slope.square().sum()).backward()
            optimizer.step()
        """,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_found(name: str, tmp_path: Path) -> None:
    id, text = WRONG[name]
    (found,) = found_in(text, tmp_path, "--steps", "6")
    number = int(found["where"].rpartition(":")[2])
    line = (tmp_path / "script.py").read_text().split("\n")[number - 1]
    assert found["id"] == id and ("zero_grad()" if id == "no-update" else "backward()") in line


def test_calls_with_create_graph_are_parts_of_a_step(tmp_path: Path) -> None:
    """Three steps are looked at, as many calls as they have; and at most four for each."""
    (found,) = found_in(WRONG["a gradient of a gradient between"][1], tmp_path)
    assert found["id"] == "gradient-not-reset"
    endless = """
        import torch
        w = torch.ones(3, requires_grad=True)
        for step in range(100):
            print("call", step + 1)
            torch.autograd.grad(w.square().sum(), w, create_graph=True)
        """
    report = CliRunner().invoke(cli, ["check", str(written(tmp_path, endless)), "--steps", "3"])
    assert "on 12 graphs" in report.output and "call 13" not in report.output


def test_the_advice_names_who_resets(tmp_path: Path) -> None:
    (found,) = found_in(WRONG["a fused optimizer"][1], tmp_path)
    assert "optimizer.zero_grad()" in found["fix"]
    (found,) = found_in(WRONG["an update by hand"][1], tmp_path)
    assert "w.grad = None" in found["fix"]


RIGHT = {
    "three calls for one update": """
        for step in range(6):
            model(data).sum().backward()
            if step % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "two networks against each other": """
        critic = torch.nn.Linear(1, 1)
        second = torch.optim.Adam(critic.parameters())
        for step in range(3):
            second.zero_grad()
            critic(torch.ones(2, 1)).sum().backward()
            critic(model(data).detach()).sum().backward()
            second.step()
            optimizer.zero_grad()
            critic(model(data)).sum().backward()
            optimizer.step()
        """,
    "clipped and reset": """
        for step in range(3):
            optimizer.zero_grad(set_to_none=False)
            model(data).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        """,
    "steps that a scaler may skip": """
        scaler = torch.amp.GradScaler("cpu")
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(model(data).sum() * 1e38).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
    "a closure": """
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
        def closure():
            optimizer.zero_grad()
            loss = model(data).square().sum()
            loss.backward()
            return loss
        for step in range(2):
            optimizer.step(closure)
        """,
    "an update through data": """
        w = torch.ones(3, requires_grad=True)
        for step in range(3):
            (w * data).square().sum().backward()
            w.data -= 0.1 * w.grad
            w.grad = None
        """,
    "zeroed past the version counter": """
        for step in range(3):
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.data.zero_()
            model(data).sum().backward()
            optimizer.step()
        """,
    "weights that are changed for each of several gradients": """
        for step in range(3):
            optimizer.zero_grad()
            for sample in range(4):
                noise = [torch.randn_like(one) for one in model.parameters()]
                with torch.no_grad():
                    torch._foreach_add_(list(model.parameters()), noise)
                model(data).square().sum().backward()
                with torch.no_grad():
                    torch._foreach_sub_(list(model.parameters()), noise)
            optimizer.step()
        """,
    "an embedding that scales its rows": """
        table = torch.nn.Embedding(9, 3, max_norm=0.1)
        optimizer.add_param_group({"params": table.parameters()})
        for step in range(6):
            model(table(torch.tensor([1, 2]))).sum().backward()
            if step == 5:
                optimizer.step()
        """,
    "an attack on the input, before each step": """
        for step in range(3):
            attacked = data
            for turn in range(3):
                attacked = attacked.detach().requires_grad_()
                model.zero_grad()
                model(attacked).square().sum().backward()
                attacked = attacked + attacked.grad.sign()
            optimizer.zero_grad()
            model(attacked.detach()).sum().backward()
            optimizer.step()
        """,
    "gradients that are put together by hand": """
        for step in range(3):
            parts = []
            for sample in range(4):
                optimizer.zero_grad()
                model(data).square().sum().backward()
                parts.append([one.grad.clone() for one in model.parameters()])
            for one, *grads in zip(model.parameters(), *parts):
                one.grad = sum(grads)
            optimizer.step()
        """,
    "steps that are left out": """
        for step in range(3):
            optimizer.zero_grad()
            model(data).sum().backward()
            if torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) < 0.1:
                optimizer.step()
        """,
    "gradients that are only looked at": """
        for step in range(3):
            loss = model(data).square().sum()
            for name, gradient in zip("wb", torch.autograd.grad(loss, list(model.parameters()))):
                print(name, gradient)
        """,
}


@pytest.mark.parametrize("steps", ["3", "6"])
@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found(name: str, steps: str, tmp_path: Path) -> None:
    found = {one["id"] for one in found_in(RIGHT[name], tmp_path, "--steps", steps)}
    assert not found & {"gradient-not-reset", "no-update"}


@pytest.mark.slow
def test_the_watch_keeps_nothing_alive() -> None:
    recorder = Recorder()
    watch = Ledger(recorder, ModeWatch(recorder))
    leaf = torch.ones(3, requires_grad=True)
    for expected in ({}, {7: Interval(kept=True)}):
        assert watch.intervals({7: leaf}) == expected
        leaf.sum().backward()
        watch.after({7: leaf}, expected)
    gone = weakref.ref(leaf), weakref.ref(leaf.grad)
    del leaf
    gc.collect()
    assert [one() for one in gone] == [None, None]
    assert watch.intervals({7: torch.ones(3, requires_grad=True)}) == {}
