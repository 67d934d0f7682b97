"""The process that waits for the ranks of one machine and reports for all: started by one of them, and outliving it.

Reads files only. A rank that hangs, or died, is waited for no longer than it can take to tell.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from gradviz.ranks.meeting import (
    alive,
    ended_by,
    file_of,
    read,
    write,
)
from gradviz.ranks.outcome import Outcome, State, call_words, last_words
from gradviz.ranks.part import GRAPH
from gradviz.ranks.stopping import last_call

_POLL = 0.02  # seconds
_POLL_OF_LAUNCHERS = 0.5  # seconds in which they see that a rank is gone, and end the others
_START = 60.0  # seconds in which every rank must have begun
_LONGEST = 600.0  # seconds that a rank may compute on when another has ended
_GOING = 5.0  # seconds in which ranks leave once the report is written
_INCOMPLETE = 3


def main() -> None:
    """Wait, report, and end with the command's exit code. What to do is in the last argument, as JSON."""
    told = json.loads(sys.argv.pop())
    folder, ranks, wait = told["folder"], tuple(told["ranks"]), told["wait"]
    code = _INCOMPLETE
    outcomes: list[Outcome] = []
    try:
        outcomes = settled(folder, ranks, wait)
        from gradviz.ranks.reporting import report

        code = report(outcomes, told["arguments"])
    finally:
        incomplete = not outcomes or any(outcome.state != "ended" or outcome.failed for outcome in outcomes)
        if incomplete and code == 0:
            code = _INCOMPLETE
        write(os.path.join(folder, "done"), {"others": _INCOMPLETE if incomplete else 0})
        _leave(folder, ranks, outcomes)
    sys.exit(code)


def settled(folder: str, ranks: Sequence[int], wait: float) -> list[Outcome]:
    """How every rank ended, once that is known: it left its result, it is gone, or it waits for one that will not come."""
    began = time.monotonic()
    first_end: float | None = None
    quiet = _Quiet()
    gone: dict[int, tuple[float, int]] = {}
    told = False
    while True:
        outcomes = [outcome_of(folder, rank) for rank in ranks]
        now = time.monotonic()
        for outcome in outcomes:
            if outcome.state == "died" or outcome.failed:  # who is told to end by a launcher ends because of another
                asked = outcome.signal == signal.SIGTERM
                gone.setdefault(outcome.rank, (now + _POLL_OF_LAUNCHERS * asked, outcome.signal))
        outcomes = [
            outcome._replace(gone=gone[outcome.rank][0], signal=gone[outcome.rank][1])
            if outcome.rank in gone
            else outcome._replace(gone=math.inf)
            for outcome in outcomes
        ]
        waiting = [outcome for outcome in outcomes if outcome.state in ("running", "absent")]
        if not waiting:
            return outcomes
        if len(waiting) < len(outcomes):
            first_end = now if first_end is None else first_end
        absent = [outcome for outcome in waiting if outcome.state == "absent"]
        if absent and now - began > _START:
            return outcomes
        stuck = [outcome for outcome in waiting if outcome.call is not None and quiet.seconds(outcome, now) > wait]
        if len(stuck) == len(waiting) or (first_end is not None and now - first_end > _LONGEST):
            return [outcome._replace(state="stuck") if outcome.state == "running" else outcome for outcome in outcomes]
        if stuck and not told:
            told = True
            sys.stderr.write(_who_waits(stuck, [outcome for outcome in waiting if outcome not in stuck]))
        time.sleep(_POLL)


def _who_waits(stuck: Sequence[Outcome], others: Sequence[Outcome]) -> str:
    """What to say while some ranks wait for others that run: nobody can know whether these will come."""
    there = "; ".join(f"rank {outcome.rank} waits in {call_words(outcome)}" for outcome in stuck)
    running = "; ".join(f"rank {outcome.rank}{last_words(outcome)} (process {outcome.pid})" for outcome in others)
    return (
        f"Still waiting: {there}. Still running: {running}. Ctrl-C ends the launch; "
        "`py-spy dump --pid PROCESS` shows where a process is.\n"
    )


class _Quiet:
    """How long each rank has been in the call in which it is."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[object, float]] = {}

    def seconds(self, outcome: Outcome, now: float) -> float:
        call, since = self._since.get(outcome.rank, (None, now))
        if call != outcome.calls:
            self._since[outcome.rank] = outcome.calls, now
            return 0.0
        return now - since


def outcome_of(folder: str, rank: int) -> Outcome:
    """What is known of one rank right now."""
    start, end = read(file_of(folder, "start", rank)), read(file_of(folder, "end", rank))
    if start is None:
        return Outcome(rank, "absent")
    count, open_call = last_call(file_of(folder, "calls", rank))
    by = ended_by(start["pid"])
    state: State = "ended" if end is not None else "running" if alive(start["pid"]) else "died"
    if state == "died":  # it may have ended between the two looks
        end = read(file_of(folder, "end", rank))
        state = "ended" if end is not None else state
    graph, notes = file_of(folder, GRAPH, rank), file_of(folder, "calls", rank)
    graph = graph if os.path.exists(graph) else ""
    told = start["pid"], start["world"], start["host"]
    return Outcome(rank, state, *told, end or {}, open_call, count, graph, notes, signal=by)


def _leave(folder: str, ranks: Sequence[int], outcomes: Sequence[Outcome]) -> None:
    """Let the ranks go, end those that are stuck, and take the folder away.

    Those that failed go first: a launcher blames the first one that is gone.
    """
    first = [outcome.pid for outcome in outcomes if outcome.state == "ended" and outcome.pid != os.getppid()]
    until = time.monotonic() + _GOING
    while time.monotonic() < until and any(alive(process) for process in first):
        time.sleep(_POLL)
    for outcome in outcomes:
        if outcome.state == "stuck" and outcome.pid and alive(outcome.pid):
            with suppress(OSError):
                os.kill(outcome.pid, signal.SIGTERM)
    until = time.monotonic() + _GOING
    others = [outcome.pid for outcome in outcomes if outcome.pid and outcome.pid != os.getppid()]
    while time.monotonic() < until and any(alive(process) for process in others):
        time.sleep(_POLL)
    shutil.rmtree(folder, ignore_errors=True)
