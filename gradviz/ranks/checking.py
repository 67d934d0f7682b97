"""The findings of all ranks as one list: equal ones once with the ranks that have them, then what only all ranks together show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gradviz.analysis.health.finding import SEVERITIES, Finding, Findings
from gradviz.graph import Graph
from gradviz.ranks.meeting import read
from gradviz.ranks.outcome import Outcome
from gradviz.ranks.rank_diff import RankDiff
from gradviz.ranks.words import named


def merged_findings(outcomes: Sequence[Outcome], diff: RankDiff | None) -> Findings:
    """What `check` found on the ranks of one machine. `where` begins with the ranks."""
    told = {one.rank: data for one in outcomes if (data := read(str(one.end.get("findings")))) is not None}
    found = list(_same_once(told))
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    checked = dict.fromkeys(id for data in told.values() for id in data["checked"])
    skipped = dict.fromkeys((id, reason) for data in told.values() for id, reason in data["skipped"])
    failed = next((f"{named([rank])}: {data['failed']}" for rank, data in told.items() if data["failed"]), "")
    graph = diff.graph if diff is not None else Graph()
    return Findings(tuple(found), tuple(checked), (graph,), (None,), tuple(skipped), failed=failed)


def _same_once(told: dict[int, dict[str, Any]]) -> Iterator[Finding]:
    ranks_of: dict[tuple[Any, ...], list[int]] = {}
    for rank, data in told.items():
        for one, (_, call) in zip(data["findings"], data["nodes"]):
            key = (*(tuple(one[key]) if key == "names" else one[key] for key in _KEYS), call)
            ranks_of.setdefault(key, []).append(rank)
    for (id, severity, summary, names, where, why, fix, _), ranks in ranks_of.items():
        yield Finding(id, severity, summary, names, placed(ranks, where), why, fix)


_KEYS = ("id", "severity", "summary", "names", "where", "why", "fix")


def placed(ranks: Iterable[int], where: str) -> str:
    """A place with the ranks that are meant."""
    return f"{named(ranks)}: {where}" if where else named(ranks)
