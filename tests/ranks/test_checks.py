"""Checks on several ranks: their examples under torchrun, and the rules on facts made by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gradviz.checks.context import CheckContext
from gradviz.checks.finding import Finding
from gradviz.checks.output import EXAMPLE, page
from gradviz.checks.record import Raised, RunRecord
from gradviz.checks.registry import Check, checks, run
from gradviz.graph import CollectiveCall, Graph, Leaf, Node, Process, SourceLine, TensorInfo
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


# -- collective-order --------------------------------------------------------------------------------------------------


def call(
    op: str, line: int, *, shape: tuple[int, ...] = (3,), group: tuple[int, ...] = (), ended: bool = True
) -> CollectiveCall:
    return CollectiveCall(op, SourceLine("train.py", line), TensorInfo(shape, "float32", "cpu"), group, ended=ended)


def message(op: str, line: int, peer: int | None, *, size: int = 3, tag: int = 0, ended: bool = True) -> CollectiveCall:
    return call(op, line, shape=(size,), ended=ended)._replace(peer=peer, tag=tag)


def order(*calls: list[CollectiveCall], ends: dict[int, RankEnd] | None = None) -> list[str]:
    every = dict(enumerate(tuple(one) for one in calls))
    together = Together(None, every, {rank: (ends or {}).get(rank, ENDED) for rank in every})
    found = run([CheckContext(Graph(), ranks=together)], only=["collective-order"])
    return [f"{one.summary} | {one.where}" for one in found]


def test_the_same_calls_from_other_lines_are_no_fault() -> None:
    assert order([call("all_reduce", 1)], [call("all_reduce", 9)]) == []
    assert order([call("all_gather", 1)], [call("all_gather", 1, shape=(4,))]) == []


def test_the_first_call_that_differs_is_named_with_both_lines() -> None:
    (found,) = order(
        [call("all_reduce", 1), call("barrier", 2)],
        [call("all_reduce", 1), call("broadcast", 7)],
        [call("all_reduce", 1), call("barrier", 2)],
    )
    assert "collective 2 is not the same on all ranks" in found
    assert found.endswith("| ranks 0, 2: train.py:2; rank 1: train.py:7")


def test_another_shape_or_no_call_differs() -> None:
    assert "(4,) float32" in order([call("all_reduce", 1)], [call("all_reduce", 1, shape=(4,))])[0]
    assert "rank 1 makes no such call" in order([call("all_reduce", 1)], [])[0]


def test_groups_are_compared_by_themselves() -> None:
    pairs = [[call("all_reduce", rank, group=(0, 1) if rank < 2 else (2, 3))] for rank in range(4)]
    assert order(*pairs) == []
    assert len(order(*pairs[:3], [call("broadcast", 3, group=(2, 3))])) == 1


def test_a_rank_that_failed_did_not_come_so_far() -> None:
    assert order([call("all_reduce", 1)], [], ends={1: RankEnd(failed="ValueError: x")}) == []


WHOLE, STUCK = RankEnd(whole=True), RankEnd("stuck")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([message("send", 1, 1), message("recv", 2, 1, size=5)], [message("recv", 3, 0), message("isend", 4, 0, size=5)]),
        ([message("isend", 1, 1, tag=i, size=3 + i) for i in (0, 1)], [message("irecv", 3, 0, tag=i, size=3 + i) for i in (1, 0)]),
        ([message("isend", 1, 1), message("isend", 2, 1, size=9)], [message("recv", 3, None, size=9), message("recv", 4, None)]),
        ([message("isend", 1, 1)._replace(tensor=None)], [message("irecv", 3, 0)]),
    ],
    ids=["there and back", "other order of tags", "from anyone", "unknown"],
)  # fmt: skip
def test_messages_that_fit(first: list[CollectiveCall], second: list[CollectiveCall]) -> None:
    assert order(first, second, ends=dict.fromkeys((0, 1), WHOLE)) == []


def test_messages_received_in_another_order() -> None:
    sent = [message("isend", 1, 1), message("isend", 2, 1), message("isend", 3, 1, size=5)]
    received = [message("irecv", 7, 0), message("irecv", 8, 0, size=5), message("irecv", 9, 0)]
    (found,) = order(sent, received)
    assert found.startswith(
        "message 2 from rank 0 to rank 1 is not what that receives: isend of (3,) float32, to rank 1 ag"
    )
    assert found.endswith("| rank 0: train.py:2; rank 1: train.py:8")


def test_what_a_stopped_script_would_still_have_received_is_not_lost() -> None:
    assert order([message("isend", 1, 1)], []) == []
    (found,) = order([message("isend", 1, 1)], [], ends={1: WHOLE})
    assert found == "rank 0 sends rank 1 a message that is never received | rank 0: train.py:1"


def test_who_waits_for_a_message_in_vain() -> None:
    waiting = [message("recv", 1, 1, ended=False)], [message("recv", 9, 0, ended=False)]
    (found,) = order(*waiting, ends=dict.fromkeys((0, 1), STUCK))
    assert found == "rank 1 waits for a message that rank 0 never sends | rank 1: train.py:9; rank 0: train.py:1"
    (found,) = order(waiting[0], [], [message("recv", 5, 0, ended=False)], ends={0: STUCK, 1: WHOLE, 2: STUCK})
    assert found.startswith("rank 0 waits for a message that rank 1")  # rank 2 waits because of that
    assert order(waiting[0], [], ends={0: STUCK, 1: RankEnd(failed="ValueError: x")}) == []


# -- missing-rank ------------------------------------------------------------------------------------------------------


def test_the_rank_that_went_first_is_named_and_who_waited_where() -> None:
    calls = {
        0: (call("all_reduce", 14, ended=False),),
        1: (call("broadcast", 3),),
        2: (call("all_reduce", 14, ended=False),),
    }
    ends = {0: RankEnd("died", order=1), 1: RankEnd("died", order=0), 2: RankEnd("stuck", order=2)}
    (found,) = run([CheckContext(Graph(), ranks=Together(None, calls, ends))], only=["missing-rank"])
    assert found.summary == "rank 1 died without a word, and 2 others waited for it"
    assert found.where == "rank 1: train.py:3"
    assert "rank 0 was in all_reduce at train.py:14; rank 2 waits in all_reduce at train.py:14" in found.why


def test_who_lost_a_connection_was_not_the_first() -> None:
    calls = {0: (call("all_reduce", 14),), 1: (call("all_reduce", 14, ended=False),)}
    ends = {0: RankEnd(failed="RuntimeError: Connection reset by peer", order=0), 1: RankEnd("died", order=1)}
    (found,) = run([CheckContext(Graph(), ranks=Together(None, calls, ends))], only=["missing-rank"])
    assert found.summary.startswith("rank 1 died without a word in all_reduce")


def missing(calls: dict[int, tuple[CollectiveCall, ...]], ends: dict[int, RankEnd]) -> Finding:
    (found,) = run([CheckContext(Graph(), ranks=Together(None, calls, ends))], only=["missing-rank"])
    return found


def test_of_ranks_that_a_launcher_ended_the_one_that_waited_is_not_blamed() -> None:
    """One hangs outside torch.distributed, and the other waits for it in a call, until both get a SIGTERM."""
    calls = {0: (call("backward", 18), call("backward", 18, ended=False)), 1: (call("backward", 18),)}
    ends = {0: RankEnd("died", order=0, signal=15), 1: RankEnd("died", order=1, signal=15)}
    found = missing(calls, ends)
    assert found.summary == ("rank 1 did not make its next call before the launch was ended, and 1 other waited for it")
    assert "rank 0 was in backward at train.py:18" in found.why
    assert "what rank 1 does after train.py:18" in found.fix


@pytest.mark.parametrize(
    ("number", "summary", "fix"),
    [
        (0, "rank 1 died without a word in all_reduce", "mostly ran out of memory"),
        (9, "rank 1 was killed (SIGKILL) in all_reduce", "memory of the machine"),
        (11, "rank 1 was ended by SIGSEGV in all_reduce", "code below Python"),
        (15, "rank 1 was told to end (SIGTERM) in all_reduce", "what ended the launch"),
        (64, "rank 1 was ended by", "code below Python"),
    ],
)
def test_how_a_rank_ended_is_said(number: int, summary: str, fix: str) -> None:
    found = missing({1: (call("all_reduce", 3, ended=False),)}, {0: ENDED, 1: RankEnd("died", signal=number)})
    assert found.summary.startswith(summary) and fix in found.fix


def test_a_collective_that_only_the_rank_that_ended_calls_is_named() -> None:
    calls = {0: (call("backward", 18),), 1: (call("backward", 18), call("all_reduce", 19, ended=False))}
    ends = {0: RankEnd(failed="RuntimeError: Connection reset by peer"), 1: RankEnd("died", order=1, signal=6)}
    found = missing(calls, ends)
    assert found.summary.startswith("rank 1 ended in all_reduce, which rank 0 did not call")
    assert found.fix.startswith("Call all_reduce on every rank or on none")


def test_what_all_ranks_raise_makes_none_of_them_missing() -> None:
    ends = {rank: RankEnd(failed="RuntimeError: the same", order=rank) for rank in range(2)}
    assert not run([CheckContext(Graph(), ranks=Together(None, {}, ends))], only=["missing-rank"]).found


# -- requires-grad-input -----------------------------------------------------------------------------------------------


def test_what_a_stage_receives_is_no_input_to_advise_about() -> None:
    data, buffer = TensorInfo((4,), "float32", "cpu"), TensorInfo((3,), "float32", "cpu")
    leaves = (Leaf(1, ("w",), data, "parameter"), Leaf(2, ("x",), data), Leaf(3, ("buffer",), buffer))
    nodes = tuple(Node(i, "AccumulateGrad") for i in range(4))
    process = Process(1, 2, calls=(message("irecv", 7, 0), message("isend", 9, 0, size=4)))
    for calls, inputs in ((process.calls, "1 input requires grad: x"), ((), "2 inputs require grad: x and buffer")):
        graph = Graph(nodes, leaves=leaves, process=process._replace(calls=calls))
        (found,) = run([CheckContext(graph)], only=["requires-grad-input"])
        assert found.summary == inputs


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


def test_ready_twice_is_known_from_what_backward_raised() -> None:
    text = "Expected to mark a variable ready only once. This error is caused by one of the following reasons"
    found = run(
        [CheckContext(Graph(), record=RunRecord(raised=Raised("RuntimeError", text, SourceLine("train.py", 9))))],
        only=["ready-twice"],
    )
    assert [one.where for one in found] == ["train.py:9"]
