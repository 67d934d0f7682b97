"""A loss that is NaN or infinite: seen without a flag, traced to where it was born, and the advice helps."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.checks.advice import alarms, skip_unread
from tests.checks.test_scripts import check, written
from tests.walker.graphs import needs_raw


class Case(NamedTuple):
    """A script, the code that is to blame, a piece of the advice, and what it replaces by what."""

    text: str
    line: str
    advice: str
    replace: tuple[str, str]


HEAD = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 3)
for step in range(3):
    optimizer.zero_grad()
    h = model(x)
"""
TAIL = """
    loss.backward()
    optimizer.step()
"""
CASES = {
    "data of one row, standardised": Case(
        "    d = torch.ones(2 - step, 3).cumsum(0)\n    d = (d - d.mean(0)) / (d.std(0) + 1e-5) if len(d) else d\n"
        "    loss = (h[: len(d)] * d).sum() + h.square().mean()",
        "d.std(0)",
        "pass correction=0 to std()",
        ("d.std(0)", "d.std(0, correction=0)"),
    ),
    "a logarithm of zero": Case(
        "    p = h.relu()\n    loss = -torch.log(p).mean()",
        "torch.log(p)",
        "torch.log(x + 1e-6)",
        ("log(p)", "log(p + 1e-6)"),
    ),
    "a root whose slope is infinite": Case(
        "    loss = h.var(dim=0, unbiased=False).sqrt().mean() + h.mean()",
        ".sqrt()",
        "torch.sqrt(x.clamp(min=1e-6))",
        ("h.var(dim=0, unbiased=False).sqrt()", "torch.sqrt(h.var(dim=0, unbiased=False).clamp(min=1e-6))"),
    ),
    "a root of what falls below zero, and is not taken": Case(
        "    h = h - h.mean()\n    inner = 2 * (torch.sqrt(h) - 1) ** 2\n    loss = torch.where(h > 0, inner, h.square()).mean()",
        "torch.sqrt(h)",
        "torch.sqrt(x.clamp(min=1e-6))",
        ("torch.sqrt(h)", "torch.sqrt(h.clamp(min=1e-6))"),
    ),
    "a row that is masked completely": Case(
        "    scores = h.masked_fill(torch.tensor([[True], [False]]), float('-inf'))\n"
        "    loss = (torch.softmax(scores, -1) * h)[1:].square().mean()",
        "torch.softmax(",
        "torch.finfo(scores.dtype).min instead of float('-inf')",
        ("float('-inf')", "torch.finfo(h.dtype).min"),
    ),
    "a logarithm of what was trained below zero": Case(
        "    width = model.bias.sum()\n    loss = h.square().mean() / width**2 + torch.log(width)",
        "torch.log(width)",
        "torch.nn.functional.softplus(x)",
        ("width = model.bias.sum()", "width = torch.nn.functional.softplus(model.bias.sum())"),
    ),
    "a root of numbers below zero": Case(
        "    loss = torch.sqrt(h - 9).mean()",
        "torch.sqrt(",
        "torch.nn.functional.softplus(x)",
        ("torch.sqrt(h - 9)", "torch.sqrt(torch.nn.functional.softplus(h - 9))"),
    ),
    "a step too large": Case("    loss = (10 * h).pow(4).sum()", "", "Lower the learning rate", ("lr=0.1", "lr=1e-6")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_found_and_the_advice_helps(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    script = HEAD + case.text + TAIL
    found, code = check(written(tmp_path, script))
    (alarm,) = [one for one in found if one["severity"] != "note"]
    assert code == 1 and alarm["id"] == "nonfinite" and case.advice in alarm["fix"]
    if case.line:
        assert case.line in script.split("\n")[int(alarm["where"].rpartition(":")[2]) - 1]
    assert script.count(case.replace[0]) == 1
    found, code = check(written(tmp_path, script.replace(*case.replace)))
    assert code == 0, found


QUIET = {
    "a scaled loss that is infinite once": """
    scaler = torch.amp.GradScaler("cpu")
    loss = scaler.scale(h.sum() * 1e38)
    """,
    "a masked row that the loss has nothing of": """
    loss = torch.logsumexp(h.masked_fill(torch.tensor([True, False, False]), float("-inf")), -1).mean()
    """,
}


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_found(name: str, tmp_path: Path) -> None:
    found, _ = check(written(tmp_path, HEAD + QUIET[name].rstrip() + "\n    loss.backward()\n"))
    assert "nonfinite" not in {one["id"] for one in found}


def test_masks_made_of_logarithms_are_no_broken_data(tmp_path: Path) -> None:
    script = HEAD + (
        "    mask = torch.log(torch.tensor([[1.0, 1.0, 0.0]]))\n    loss = torch.softmax(h + mask, -1).square().mean()"
        + TAIL
    )
    assert check(written(tmp_path, script))[1] == 0


def test_data_that_is_nan_is_looked_for_where_it_is_computed(tmp_path: Path) -> None:
    skip_unread("nonfinite")
    script = """
        import torch
        net = torch.nn.Linear(3, 1)
        total, count = torch.ones(2, 3), torch.tensor([[1.0], [0.0]])
        average = (total - 1) / count
        loss = net(average).square().mean()
        loss.backward()
    """
    (found,) = alarms(script, tmp_path)
    assert "came in without a graph" in found["why"] and found["where"].endswith("script.py:5")


@needs_raw
def test_one_of_several_losses_divides_by_zero_in_what_has_no_graph(tmp_path: Path) -> None:
    """The line of the target is told, not the one beside it that has the same form and a graph."""
    script = """
        import torch
        def texture(a, b):
            first = (a - a.mean(1, keepdim=True)) / a.std(1, keepdim=True)
            second = (b - b.mean(1, keepdim=True)) / b.std(1, keepdim=True)
            return (first - second).square().mean()
        torch.manual_seed(0)
        net, x = torch.nn.Linear(4, 4), torch.rand(2, 4)
        x[1] = 1.0
        loss = sum([(net(x) - x).abs().mean(), 0.1 * texture(net(x), x)])
        loss.backward()
    """
    (found,) = alarms(script, tmp_path)
    assert found["where"].endswith("script.py:5") and "add 1e-6" in found["fix"], found


@needs_raw
def test_a_mask_behind_a_square_hides_nan_from_the_loss_alone(tmp_path: Path) -> None:
    masked = "torch.where(known, (model(x) - target) ** 2, 0.0)"
    script = f"""
        import torch
        model = torch.nn.Linear(3, 1)
        x, target = torch.ones(4, 3), torch.tensor([[1.0], [float("nan")], [2.0], [3.0]])
        known = ~target.isnan()
        loss = {masked}.mean()
        loss.backward()
    """
    path = written(tmp_path, script)
    (found,) = check(path)[0]
    assert "overflow" not in found["why"] and "--values" in found["fix"]  # only what was seen
    (found,) = check(path, "--values")[0]
    assert "1 of 4 elements of its input are NaN" in found["why"] and "target[known]" in found["fix"]
    assert check(written(tmp_path, script.replace(masked, "((model(x)[known] - target[known]) ** 2)")))[1] == 0
