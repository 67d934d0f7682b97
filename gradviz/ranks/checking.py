"""What checks know of several ranks together, and all findings as one list: equal ones once with the ranks that have them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.finding import SEVERITIES, Finding, Findings
from gradviz.checks.registry import chosen, run
from gradviz.graph import Call, Graph
from gradviz.ranks.outcome import Outcome, RankEnd, calls_of, end_of
from gradviz.ranks.rank_diff import RankDiff


class Together(NamedTuple):
    """Several ranks of one launch. `diff` is None when none of them left a graph."""

    diff: RankDiff | None
    calls: Mapping[int, tuple[Call, ...]]
    ends: Mapping[int, RankEnd]


def merged_findings(
    outcomes: Sequence[Outcome], diff: RankDiff | None, only: Sequence[str] = (), ignore: Sequence[str] = ()
) -> Findings:
    """What `check` found on the ranks of one machine, and on all of them together."""
    told = {outcome.rank: _read(str(outcome.end["findings"])) for outcome in outcomes if "findings" in outcome.end}
    every = tuple(outcomes)
    together = Together(
        diff,
        {outcome.rank: calls_of(outcome) for outcome in outcomes},
        {outcome.rank: end_of(outcome, every) for outcome in outcomes},
    )
    findings = [*_of_all(together, only, ignore), *_same_once(told)]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    checked = dict.fromkeys(id for own in told.values() for id in own.checked)
    checked |= dict.fromkeys(check.id for check in chosen(only, ignore) if check.ranks > 1)
    skipped = dict.fromkeys(reason for own in told.values() for reason in own.skipped)
    failed = next((own.failed for own in told.values() if own.failed), "")
    graph = diff.graph if diff is not None else Graph()
    return Findings(tuple(findings), tuple(checked), (graph,), (None,), tuple(skipped), failed=failed)


def findings_of(diff: RankDiff) -> Findings:
    """The same for graphs that the ranks saved: what only all of them together show."""
    calls = {rank: process.calls for rank, process in diff.processes.items()}
    findings = _of_all(Together(diff, calls, dict.fromkeys(calls, RankEnd())), (), ())
    return Findings(tuple(findings), (), (diff.graph,), (None,))


def _of_all(together: Together, only: Sequence[str], ignore: Sequence[str]) -> tuple[Finding, ...]:
    ids = [check.id for check in chosen(only, ignore) if check.ranks > 1]
    if not ids:
        return ()
    graph = together.diff.graph if together.diff is not None else Graph()
    return run([CheckContext(graph, ranks=together)], only=ids).found


def _read(path: str) -> Findings:
    with open(path, "rb") as file:  # in a folder that only this user can write to
        findings, _ = pickle.load(file)
    assert isinstance(findings, Findings), os.fspath(path)
    return findings


def _same_once(told: Mapping[int, Findings]) -> Iterator[Finding]:
    """Equal findings as one. Ids of nodes are of graphs that nobody has any more, so they are left out."""
    ranks_of: dict[Finding, list[int]] = {}
    for rank, findings in told.items():
        for finding in findings:
            parts = tuple(replace(part, rank=None, nodes=(), edges=()) for part in finding.consequences)
            same = replace(finding, rank=None, nodes=(), edges=(), call=_call(finding.call), consequences=parts)
            ranks_of.setdefault(same, []).append(rank)
    for finding, ranks in ranks_of.items():
        yield replace(finding, ranks=tuple(ranks))


def _call(call: int | None) -> int | None:
    """The first call needs no mention."""
    return None if call == 1 else call
