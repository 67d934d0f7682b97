"""The process that reports for all ranks of one machine: it waits for them, and shows what they left, as one where it can.

Started by one of the ranks, and outliving it. Of the ranks it reads files only. One that hangs, or died, is waited for no
longer than it can take to tell.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.finding import SEVERITIES, Finding, Findings
from gradviz.checks.registry import chosen, run as run_checks
from gradviz.cli.role import Role
from gradviz.graph import CollectiveCall, Graph
from gradviz.rank import Rank, grouped, named
from gradviz.ranks.calls import calls_of
from gradviz.ranks.part import MERGED
from gradviz.ranks.rendezvous import (
    INCOMPLETE,
    POLL,
    Quiet,
    RankEnd,
    RankOutcome,
    Rendezvous,
    State,
    alive,
    end_of,
    outcome_of,
    write,
)
from gradviz.run.ending import RunResult
from gradviz.run.program import Target

if TYPE_CHECKING:
    from gradviz.ranks.rank_diff import RankDiff

_POLL_OF_LAUNCHERS = 0.5  # seconds in which they see that a rank is gone, and end the others
_START = 60.0  # seconds in which every rank must have begun
_LONGEST = 600.0  # seconds that a rank may compute on when another has ended
_GOING = 5.0  # seconds in which ranks leave once the report is written
_NOBODY_READS = 141  # as a shell reports a process whose reader went away


def main() -> None:
    """Wait, report, and end with the command's exit code. What to do is in the last argument, as JSON."""
    (folder, starter, ranks), wait, arguments = json.loads(sys.argv.pop())
    rendezvous = Rendezvous(folder, Rank(*starter), tuple(ranks))
    code = others = INCOMPLETE
    outcomes: list[RankOutcome] = []
    try:
        outcomes = settled(rendezvous, wait)
        if all(outcome.state == "ended" and not outcome.failed for outcome in outcomes):
            others = 0
        code = report(outcomes, arguments)
    finally:
        write(os.path.join(folder, "done"), {"others": others})
        _leave(folder, outcomes)
    sys.exit(code or others)


_STUCK: dict[State, State] = {"running": "stuck"}


def _with_end(outcome: RankOutcome, gone: dict[int, tuple[float, int]], late: Mapping[int, int]) -> RankOutcome:
    """With when a rank was first seen to be gone, by which signal, and whether others had waited for it."""
    if outcome.state == "died" or outcome.failed:  # who is told to end by a launcher ends because of another
        later = _POLL_OF_LAUNCHERS if outcome.signal == signal.SIGTERM else 0.0
        gone.setdefault(outcome.rank, (time.monotonic() + later, outcome.signal))
    at, by = gone.get(outcome.rank, (math.inf, outcome.signal))
    return outcome._replace(gone=at, signal=by, late=late.get(outcome.rank) == outcome.calls)


def _outside(waiting: Sequence[RankOutcome]) -> dict[int, int]:
    """The bytes of the notes of those that are in no call."""
    return {outcome.rank: outcome.calls for outcome in waiting if outcome.call is None}


def settled(rendezvous: Rendezvous, wait: float) -> list[RankOutcome]:
    """How every rank ended, once that is known: it left its result, it is gone, or it waits for one that will not come."""
    began = time.monotonic()
    first_end = math.inf
    quiet = Quiet()
    gone: dict[int, tuple[float, int]] = {}
    told = False
    late: dict[int, int] = {}  # bytes of the notes of those that others waited for
    while True:
        outcomes = [_with_end(outcome_of(rendezvous, rank), gone, late) for rank in rendezvous.ranks]
        now = time.monotonic()
        waiting = [outcome for outcome in outcomes if outcome.state in ("running", "absent")]
        absent = now - began > _START and "absent" in {outcome.state for outcome in waiting}
        if absent or not waiting:
            return outcomes
        if len(waiting) < len(outcomes):
            first_end = min(first_end, now)
        stuck = [outcome for outcome in waiting if _is_stuck(outcome, quiet, wait)]
        if len(stuck) == len(waiting) or now - first_end > _LONGEST:
            return [outcome._replace(state=_STUCK.get(outcome.state, outcome.state)) for outcome in outcomes]
        if stuck and not told:
            told = True
            late = _outside(waiting)
            sys.stderr.write(_who_waits(stuck, waiting))
        time.sleep(POLL)


def _is_stuck(outcome: RankOutcome, quiet: Quiet, wait: float) -> bool:
    return outcome.call is not None and quiet.seconds(outcome.rank, outcome.calls) > wait


def _who_waits(stuck: Sequence[RankOutcome], waiting: Sequence[RankOutcome]) -> str:
    """What to say while some ranks wait for others that run: nobody can know whether these will come."""
    there = "; ".join(f"rank {outcome.rank} waits in {outcome.inside}" for outcome in stuck)
    running = "; ".join(
        f"rank {outcome.rank}{outcome.outside} (process {outcome.pid})" for outcome in waiting if outcome not in stuck
    )
    return (
        f"Still waiting: {there}. Still running: {running}. Ctrl-C ends the launch; "
        "`py-spy dump --pid PROCESS` shows where a process is.\n"
    )


def _leave(folder: str, outcomes: Sequence[RankOutcome]) -> None:
    """Let the ranks go, end those that are stuck, and take the folder away.

    Those that failed go first: a launcher blames the first one that is gone.
    """
    _wait_for(outcome.pid for outcome in outcomes if outcome.state == "ended")
    for outcome in outcomes:
        if outcome.state == "stuck" and outcome.pid and alive(outcome.pid):
            with suppress(OSError):
                os.kill(outcome.pid, signal.SIGTERM)
    _wait_for(outcome.pid for outcome in outcomes if outcome.pid)
    shutil.rmtree(folder, ignore_errors=True)


def _wait_for(processes: Iterable[int]) -> None:
    """Until these are gone, or should be, but for the one that waits for this process itself."""
    others, until = set(processes) - {os.getppid()}, time.monotonic() + _GOING
    while time.monotonic() < until and any(map(alive, others)):
        time.sleep(POLL)


# -- the report --------------------------------------------------------------------------------------------------------


def report(outcomes: Sequence[RankOutcome], arguments: Sequence[str]) -> int:
    """Write the report to standard output, and what is missing to standard error. Returns the command's exit code."""
    try:
        return _report(outcomes, arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would write again while it ends
        return _NOBODY_READS


def _report(outcomes: Sequence[RankOutcome], arguments: Sequence[str]) -> int:
    wanted = MERGED.get(next((word for word in arguments if not word.startswith("-")), ""))
    wrong = [bool(outcome.end.get("problem")) and not outcome.failed for outcome in outcomes]
    graphs = {outcome.rank: outcome.graph for outcome in outcomes if outcome.graph}
    if not all(wrong) and (wanted == "findings" or (wanted == "graph" and graphs)):
        code = _merged(outcomes, graphs, arguments)
    else:
        code = _texts(outcomes, as_json="--json" in arguments)
    for line in problems(outcomes):
        sys.stderr.write(f"{line}\n")
    return max(code, 2 if any(wrong) else 0)


def _merged(outcomes: Sequence[RankOutcome], graphs: Mapping[int, str], arguments: Sequence[str]) -> int:
    from gradviz.cli.main import cli
    from gradviz.ranks.files import merge_files

    try:
        given = ReporterRole(merge_files(graphs) if graphs else None, tuple(outcomes))
        cli(list(arguments), prog_name="gradviz", obj=given)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


_PLACE = "\0rank\0"


def _texts(outcomes: Sequence[RankOutcome], *, as_json: bool) -> int:
    """Write each text once."""
    said: dict[str, list[int]] = {}
    for outcome in outcomes:
        text = outcome.end.get("text", "")
        if text:  # without what says its rank and names its files
            text = text.replace(f"rank {outcome.rank} of {outcome.world}", _PLACE)
            said.setdefault(re.sub(rf"\.rank{outcome.rank}(?=\.\w+)", ".rankN", text), []).append(outcome.rank)
    if as_json and said:
        reports = [{"ranks": ranks, "report": _data(text)} for text, ranks in said.items()]
        sys.stdout.write(json.dumps({"ranks": reports}, indent=2) + "\n")
    else:
        for i, (text, ranks) in enumerate(said.items()):
            words = f"{named(ranks)} of {outcomes[0].world}" + (", alike" if len(ranks) > 1 else "")
            sys.stdout.write(("\n" if i else "") + (f"== {named(ranks)} ==\n" if len(said) > 1 else ""))
            sys.stdout.write(text.replace(_PLACE, words))
        if len(said) > 1:
            sys.stdout.write(f"\nReports of the ranks: {grouped(map(tuple, said.values()))}.\n")
    sys.stdout.flush()
    return max((outcome.code for outcome in outcomes if outcome.end), default=0)


def _data(text: str) -> Any:
    try:
        return json.loads(text.replace(_PLACE, "all ranks alike"))
    except ValueError:
        return text


def problems(outcomes: Sequence[RankOutcome]) -> Iterator[str]:
    """A line for each way in which ranks failed to give a result, equal ones together."""
    said: dict[str, list[int]] = {}
    first = min(outcomes, key=lambda outcome: outcome.gone)
    for outcome in outcomes:
        words = outcome.problem
        if outcome.state == "died" and outcome.gone > first.gone:  # launchers end the others
            words += f" Rank {first.rank} was gone before."
        if words:
            said.setdefault(words, []).append(outcome.rank)
    for words, ranks in said.items():
        yield f"{named(ranks).capitalize()}: {words}"


# -- one graph, one list of findings -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReporterRole(Role):
    """It runs the command for all ranks: it shows what they left, and runs no script."""

    diff: RankDiff | None
    outcomes: tuple[RankOutcome, ...]

    def file(self, path: str, asked: bool) -> str:
        """That of one machine among several has its ranks in its name: machines may share a disk."""
        ranks = [outcome.rank for outcome in self.outcomes]
        if self.outcomes[0].world > len(ranks):
            stem, suffix = os.path.splitext(path)
            return f"{stem}.ranks{min(ranks)}-{max(ranks)}{suffix}"
        return path

    def left_graph(self, target: Target) -> RunResult[Graph]:
        """The merged graph."""
        return RunResult(_graph_of(self.diff), target)

    def left_findings(self, target: Target, only: Sequence[str], ignore: Sequence[str]) -> RunResult[Findings]:
        """What was found on each of the ranks, and on all of them together."""
        told = {outcome.rank: _read(outcome.end["findings"]) for outcome in self.outcomes if "findings" in outcome.end}
        calls = {outcome.rank: calls_of(outcome.notes) for outcome in self.outcomes}
        ends = {outcome.rank: end_of(outcome, self.outcomes) for outcome in self.outcomes}
        every = [*findings_of_all(Together(self.diff, calls, ends), only, ignore), *_same_once(told)]
        findings = sorted(every, key=lambda finding: SEVERITIES.index(finding.severity))
        checked = dict.fromkeys(id for own in told.values() for id in own.checked)
        checked |= dict.fromkeys(check.id for check in chosen(only, ignore) if check.ranks > 1)
        skipped = dict.fromkeys(reason for own in told.values() for reason in own.skipped)
        failed = next((own.failed for own in told.values() if own.failed), "")
        graphs = (_graph_of(self.diff),)
        return RunResult(
            Findings(tuple(findings), tuple(checked), graphs, (None,), tuple(skipped), failed=failed), target
        )


class Together(NamedTuple):
    """Several ranks of one launch, for checks. `diff` is None when none of them left a graph."""

    diff: RankDiff | None
    calls: Mapping[int, tuple[CollectiveCall, ...]]
    ends: Mapping[int, RankEnd]

    def last_call(self, rank: int) -> CollectiveCall | None:
        """The call that a rank is in, or else the last that it made."""
        calls = self.calls.get(rank, ())
        return next((call for call in reversed(calls) if not call.ended), calls[-1] if calls else None)


def findings_of_all(together: Together, only: Sequence[str], ignore: Sequence[str]) -> tuple[Finding, ...]:
    ids = [check.id for check in chosen(only, ignore) if check.ranks > 1]
    return run_checks([CheckContext(_graph_of(together.diff), ranks=together)], only=ids).found if ids else ()


def _graph_of(diff: RankDiff | None) -> Graph:
    return diff.graph if diff is not None else Graph()


def _read(path: str) -> Findings:
    with open(path, "rb") as file:  # in a folder that only this user can write to
        findings: Findings = pickle.load(file)
    return findings


def _same_once(told: Mapping[int, Findings]) -> Iterator[Finding]:
    """Equal findings as one. Ids of nodes are of graphs that nobody has any more, so they are left out."""
    ranks_of: dict[Finding, list[int]] = {}
    for rank, findings in told.items():
        for finding in findings:
            parts = tuple(replace(part, rank=None, nodes=(), edges=()) for part in finding.consequences)
            call = None if finding.call == 1 else finding.call  # the first call needs no mention
            same = replace(finding, rank=None, nodes=(), edges=(), call=call, consequences=parts)
            ranks_of.setdefault(same, []).append(rank)
    for finding, ranks in ranks_of.items():
        yield replace(finding, ranks=tuple(ranks))
