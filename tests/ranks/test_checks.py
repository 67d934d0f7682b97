"""Checks on several ranks: their examples under torchrun, and the rules on facts made by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gradviz.checks.context import CheckContext
from gradviz.checks.output import EXAMPLE, page
from gradviz.checks.registry import Check, checks, run
from gradviz.graph import Graph, Process
from gradviz.ranks.merging import merge
from gradviz.ranks.rendezvous import RankEnd
from gradviz.ranks.reporter import Together
from tests.ranks.launch import launch
from tests.ranks.test_merging import chain

ENDED = RankEnd()
EVERY = [one for one in checks() if one.ranks]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes left in /proc")
@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.id)
def test_the_example_triggers_the_check(one: Check, tmp_path: Path) -> None:
    done = launch(2, tmp_path, "check", "train.py", "--json", "--ranks-wait", 3, text=page(one)[EXAMPLE])
    assert done.code != 0 and done.left == ()
    found = {finding["id"]: finding for finding in json.loads(done.stdout)["findings"]}
    told = {*found, *(part["id"] for finding in found.values() for part in finding["consequences"])}
    assert one.id in told, done.stdout
    if one.id in found:
        finding = found[one.id]
        assert finding["severity"] == one.severity
        assert "train.py:" in finding["where"], finding["where"]


# -- ranks-differ, unused-on-some-ranks --------------------------------------------------------------------------------


def of(graphs: list[Graph]) -> list[str]:
    together = Together(merge(graphs), {}, {})
    found = run([CheckContext(merge(graphs).graph, ranks=together)])
    return [f"{one.id}: {one.summary}" for one in found]


def test_ranks_that_differ_in_size_alone_are_no_fault() -> None:
    assert of([chain("AB"), chain("AB", bytes=48)]) == []


def test_one_of_eight_takes_another_branch() -> None:
    (found,) = of([chain("AXC" if rank == 5 else "ABC", rank=rank) for rank in range(8)])
    assert found == "ranks-differ: rank 5 takes another branch than ranks 0-4, 6-7"


def test_stages_of_a_pipeline_are_not_compared() -> None:
    from dataclasses import replace

    graphs = [chain("AB", rank=0), chain("CD", rank=1)]
    named = [replace(one, process=Process(rank, 2, parameters=(f"stage{rank}.w",))) for rank, one in enumerate(graphs)]
    assert of(named) == []
