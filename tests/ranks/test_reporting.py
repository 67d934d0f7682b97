"""Reports of several ranks that are texts: equal ones once, with the ranks that say them, and what became of the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, TimeoutError as NotYet
from pathlib import Path

import pytest

from gradviz.rank import Rank
from gradviz.ranks.calls import calls_of, last_call
from gradviz.ranks.part import may_stop
from gradviz.ranks.rendezvous import RankOutcome, Rendezvous, rendezvous
from gradviz.ranks.reporter import problems, report, settled


def said(*texts: str) -> list[RankOutcome]:
    ends = ({"code": 0, "text": text.replace("ME", f"rank {rank} of {len(texts)}")} for rank, text in enumerate(texts))
    return [RankOutcome(rank, "ended", world=len(texts), end=end) for rank, end in enumerate(ends)]


def test_a_text_that_all_say_stands_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(said(*["train.py, ME: loss\n5 B\n"] * 3), ["saved", "train.py"]) == 0
    assert capsys.readouterr().out == "train.py, ranks 0-2 of 3, alike: loss\n5 B\n"


def test_texts_that_differ_say_whose_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    report(said("ME\n5 B\n", "ME\n6 B\n", "ME\n5 B\n"), ["saved", "train.py"])
    printed = capsys.readouterr().out
    assert printed.startswith("== ranks 0, 2 ==\nranks 0, 2 of 3, alike\n5 B\n")
    assert "== rank 1 ==\nrank 1 of 3\n6 B\n" in printed
    assert printed.endswith("Reports of the ranks: 0, 2 alike, 1 differs.\n")


def test_json_says_which_ranks_each_report_is_of(capsys: pytest.CaptureFixture[str]) -> None:
    report(said('{"bytes": 5}', '{"bytes": 6}'), ["saved", "train.py", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "ranks": [{"ranks": [0], "report": {"bytes": 5}}, {"ranks": [1], "report": {"bytes": 6}}]
    }


def test_what_became_of_ranks_that_left_nothing() -> None:
    inside = {"begin": 3, "op": "all_reduce", "source": ["/code/train.py", 14, "main", "", ""]}
    failed = {"failed": "ValueError: x", "source": ["/code/train.py", 9, "main", "", ""]}
    outcomes = [
        RankOutcome(0, "stuck", call=inside, gone=9.0),
        RankOutcome(1, "ended", end=failed, gone=1.0),
        RankOutcome(2, "died", call=inside, gone=2.0),
        RankOutcome(3, "absent", gone=9.0),
        RankOutcome(4, "died", call=inside, gone=2.0, signal=9),
        RankOutcome(5, "died", gone=2.0, signal=15),
    ]
    assert list(problems(outcomes)) == [
        "Rank 0: it waits in all_reduce at train.py:14 for a rank that does not come.",
        "Rank 1: the script failed at train.py:9: ValueError: x",
        "Rank 2: the process died in all_reduce at train.py:14. Rank 1 was gone before.",
        "Rank 3: the process never began.",
        "Rank 4: the process was ended by SIGKILL in all_reduce at train.py:14. A process that is killed without a word mostly ran "
        "out of memory. Rank 1 was gone before.",
        "Rank 5: the process was told to end (SIGTERM) before any call of torch.distributed. Rank 1 was gone before.",
    ]


# -- the folder --------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> list[Rendezvous]:
    found = [Rendezvous(str(tmp_path / "rendezvous"), Rank(rank, 2), (0, 1)) for rank in (0, 1)]
    for one in found:
        one.open()
    return found


def note(rendezvous: Rendezvous, *records: dict[str, object]) -> None:
    Path(rendezvous.path("calls")).write_text("".join(json.dumps(record) + "\n" for record in records))


def test_ranks_that_wait_for_one_that_has_ended_are_stuck(two: list[Rendezvous]) -> None:
    note(
        two[0], {"begin": 1, "op": "barrier", "source": ["t.py", 3, "", "", ""]}, {"end": 1}, {"begin": 2, "op": "wait"}
    )
    two[1].write("end", {"code": 0, "text": ""})
    outcomes = settled(two[0], wait=0.2)
    assert [one.state for one in outcomes] == ["stuck", "ended"]
    assert last_call(two[0].path("calls"))[1] == {"begin": 2, "op": "wait"}
    assert [(call.op, call.ended) for call in calls_of(outcomes[0].notes)] == [("barrier", True)]


def test_who_waits_for_a_rank_that_runs_is_said_once(two: list[Rendezvous], capsys: pytest.CaptureFixture[str]) -> None:
    note(two[0], {"begin": 1, "op": "barrier", "source": ["t.py", 3, "", "", ""]})
    note(two[1], {"begin": 1, "op": "broadcast", "source": ["t.py", 1, "", "", ""]}, {"end": 1})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(settled, two[0], wait=0.1)
        with pytest.raises(NotYet):
            waiting.result(timeout=1)
        two[1].write("end", {"code": 0, "text": ""})
        assert waiting.result(timeout=5)[0].state == "stuck"
    said = capsys.readouterr().err
    assert said.count("Still waiting: rank 0 waits in barrier at t.py:3.") == 1
    assert f"rank 1 after broadcast at t.py:1, outside torch.distributed (process {os.getpid()})" in said


def test_a_rank_goes_on_while_another_waits_and_stops_when_that_is_ready(two: list[Rendezvous]) -> None:
    note(two[0], {"begin": 1, "op": "recv"})
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        two[0].write("start", {"pid": sleeping.pid})
        assert not may_stop(two[1])
        two[0].write("ready", {"at": 1.0})
        assert may_stop(two[1])
        sleeping.kill()


def test_the_rank_that_was_ready_last_goes_on_for_one_that_waits(tmp_path: Path) -> None:
    every = [Rendezvous(str(tmp_path / "rendezvous"), Rank(rank, 3), (0, 1, 2)) for rank in range(3)]
    for one in every:
        one.open()
    note(every[0], {"begin": 1, "op": "recv"})
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        every[0].write("start", {"pid": sleeping.pid})
        every[1].write("ready", {"at": 2.0})
        every[2].write("ready", {"at": 1.0})
        assert not may_stop(every[1])
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(may_stop, every[2])
            with pytest.raises(NotYet):
                first.result(timeout=1)
            every[0].write("ready", {"at": 3.0})
            assert first.result(timeout=5)
        sleeping.kill()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_rank_that_computes_is_not_taken_to_wait(two: list[Rendezvous]) -> None:
    """On a busy machine it takes its time, while it has noted nothing since a call began."""
    note(two[0], {"begin": 1, "op": "recv"})
    file = two[0].path("ready")
    code = f"import time; t = time.monotonic()\nwhile time.monotonic() < t + 1: pass\nopen({file!r}, 'w').write('{{\"at\": 1}}')"
    with subprocess.Popen([sys.executable, "-S", "-c", code]) as computing:
        two[0].write("start", {"pid": computing.pid})
        assert may_stop(two[1])


def test_a_note_that_was_cut_off_is_passed_over(two: list[Rendezvous]) -> None:
    Path(two[0].path("calls")).write_text('{"begin": 1, "op": "barrier"}\n{"begin": 2, "o')
    assert last_call(two[0].path("calls"))[1] == {"begin": 1, "op": "barrier"}


@pytest.mark.parametrize("missing", ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"])
def test_without_a_launcher_on_this_machine_nobody_meets(missing: str) -> None:
    every = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    found = rendezvous(every)
    assert found is not None and found.ranks == (4, 5, 6, 7)
    assert rendezvous({name: value for name, value in every.items() if name != missing}) is None
    assert rendezvous({**every, "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None
