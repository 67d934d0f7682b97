"""A loss that is NaN or infinite: seen without a flag, traced to where it was born, and the advice helps."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.checks.test_scripts import check, written


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
    "a logarithm of zero": Case(
        "    p = h.relu()\n    loss = -torch.log(p).mean()",
        "torch.log(p)",
        "torch.log(x + 1e-8)",
        ("log(p)", "log(p + 1e-8)"),
    ),
    "a root whose slope is infinite": Case(
        "    loss = h.var(dim=0, unbiased=False).sqrt().mean() + h.mean()",
        ".sqrt()",
        "torch.sqrt(x + 1e-12)",
        ("h.var(dim=0, unbiased=False).sqrt()", "torch.sqrt(h.var(dim=0, unbiased=False) + 1e-12)"),
    ),
    "a row that is masked completely": Case(
        "    scores = h.masked_fill(torch.tensor([[True], [False]]), float('-inf'))\n"
        "    loss = (torch.softmax(scores, -1) * h)[1:].square().mean()",
        "torch.softmax(",
        "torch.finfo(scores.dtype).min instead of float('-inf')",
        ("float('-inf')", "torch.finfo(h.dtype).min"),
    ),
    "a step too large": Case("    loss = (10 * h).pow(4).sum()", "", "Lower the learning rate", ("lr=0.1", "lr=1e-6")),
}


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
