"""The findings of all ranks as one list: equal ones once with the ranks that have them, and what only all ranks together show."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gradviz.checks.context import CheckContext
from gradviz.checks.finding import SEVERITIES, Finding, Findings
from gradviz.checks.registry import chosen, run
from gradviz.graph import Graph
from gradviz.ranks.outcome import Outcome, calls_of, end_of
from gradviz.ranks.rank_diff import RankDiff
from gradviz.ranks.together import RankEnd, Together


def merged_findings(
    outcomes: Sequence[Outcome], diff: RankDiff | None, only: Sequence[str] = (), ignore: Sequence[str] = ()
) -> Findings:
    """What `check` found on the ranks of one machine, and on all of them together."""
    told = {one.rank: _read(str(one.end["findings"])) for one in outcomes if "findings" in one.end}
    every = tuple(outcomes)
    together = Together(
        diff, {one.rank: calls_of(one) for one in outcomes}, {one.rank: end_of(one, every) for one in outcomes}
    )
    found = [*_of_all(together, only, ignore), *_same_once(told)]
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    checked = dict.fromkeys(id for one in told.values() for id in one.checked)
    checked |= dict.fromkeys(one.id for one in chosen(only, ignore) if one.ranks > 1)
    skipped = dict.fromkeys(reason for one in told.values() for reason in one.skipped)
    failed = next((one.failed for one in told.values() if one.failed), "")
    graph = diff.graph if diff is not None else Graph()
    return Findings(tuple(found), tuple(checked), (graph,), (None,), tuple(skipped), failed=failed)


def findings_of(diff: RankDiff) -> Findings:
    """The same for graphs that the ranks saved: what only all of them together show."""
    calls = {rank: one.calls for rank, one in diff.processes.items()}
    found = _of_all(Together(diff, calls, dict.fromkeys(calls, RankEnd())), (), ())
    return Findings(tuple(found), (), (diff.graph,), (None,))


def _of_all(together: Together, only: Sequence[str], ignore: Sequence[str]) -> tuple[Finding, ...]:
    ids = [one.id for one in chosen(only, ignore) if one.ranks > 1]
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
        for one in findings:
            parts = tuple(replace(part, rank=None, nodes=(), edges=()) for part in one.consequences)
            same = replace(one, rank=None, nodes=(), edges=(), call=_call(one.call), consequences=parts)
            ranks_of.setdefault(same, []).append(rank)
    for one, ranks in ranks_of.items():
        yield replace(one, ranks=tuple(ranks))


def _call(call: int | None) -> int | None:
    """The first call needs no mention."""
    return None if call == 1 else call
