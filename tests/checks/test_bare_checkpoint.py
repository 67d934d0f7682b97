"""A reentrant checkpoint of which no input requires grad, as around blocks behind a frozen embedding: named, with what helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

HEAD = """
import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
embedding = torch.nn.Embedding(5, 4).requires_grad_(False)
adapter = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
out = torch.nn.Linear(4, 1)
"""
LOST = """
out.requires_grad_(False)
hidden = embedding(torch.tensor([1, 2]))
hidden = checkpoint(adapter, hidden, use_reentrant=True)
loss = out(hidden).sum()
loss.backward()
"""
PARTLY = LOST.replace("out.requires_grad_(False)\n", "")
BESIDE = PARTLY.replace(
    "use_reentrant=True)\n", "use_reentrant=True) + checkpoint(out, out.weight, use_reentrant=True)\n"
)
FUNCTION = PARTLY.replace("checkpoint(adapter,", "checkpoint(lambda h: adapter(h).relu(),")


@pytest.mark.parametrize(
    ("text", "id"),
    [(LOST, "no-graph"), (PARTLY, "unused-parameter"), (BESIDE, "unused-parameter"), (FUNCTION, "unused-parameter")],
)
@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_it_is_named_and_the_advice_helps(text: str, id: str, tmp_path: Path) -> None:
    script = HEAD + text
    found, code = check(written(tmp_path, script))
    alarms = {one["id"]: one for one in found if one["severity"] != "note"}
    place = f"script.py:{script[: script.index('hidden = checkpoint')].count(chr(10)) + 1}"
    assert code == 1 and id in alarms
    assert place in alarms[id]["where"] and "reentrant checkpoint" in alarms[id]["why"]
    assert f"Pass use_reentrant=False to the checkpoint in {tmp_path}/{place}" in alarms[id]["fix"]
    assert "outside no_grad()" not in str(found)
    for mended in (
        script.replace("use_reentrant=True", "use_reentrant=False"),
        script.replace("[1, 2]))\n", "[1, 2])).requires_grad_()\n"),
    ):
        found, code = check(written(tmp_path, mended))
        assert code == 0, found


def test_blocks_behind_something_that_requires_grad_are_left_alone(tmp_path: Path) -> None:
    found, code = check(
        written(tmp_path, HEAD + PARTLY.replace("embedding(", "torch.nn.Linear(2, 4)(torch.ones(1, 2)) + embedding("))
    )
    assert code == 0 and not any("no input of that" in one["why"] for one in found)
