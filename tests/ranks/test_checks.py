"""The checks on several ranks, on graphs made by hand."""

from __future__ import annotations

from dataclasses import replace

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import run
from gradviz.graph import Graph, Process
from gradviz.ranks.merging import findings_of, merge
from tests.ranks.test_merging import chain


def of(graphs: list[Graph]) -> list[str]:
    return [f"{one.id}: {one.summary}" for one in findings_of(merge(graphs))]


def test_ranks_that_differ_in_size_alone_are_no_fault() -> None:
    assert of([chain("AB"), chain("AB", bytes=48)]) == []


def test_one_of_eight_takes_another_branch() -> None:
    (found,) = of([chain("AXC" if rank == 5 else "ABC", rank=rank) for rank in range(8)])
    assert found == "ranks-differ: rank 5 takes another branch than ranks 0-4, 6-7"


def test_ranks_with_other_parts_of_a_model_are_not_compared() -> None:
    graphs = [chain("AB", rank=0), chain("CD", rank=1)]
    named = [replace(one, process=Process(rank, 2, parameters=(f"part{rank}.w",))) for rank, one in enumerate(graphs)]
    assert of(named) == []


def test_asked_for_alone_on_one_rank_they_say_what_to_run() -> None:
    found = run([BackwardCall(Graph())], only=["ranks-differ"])
    assert found.skipped == (("ranks-differ", "compares ranks: gradviz merge net.rank*.json"),)
    assert "ranks-differ" not in dict(run([BackwardCall(Graph())]).skipped)
