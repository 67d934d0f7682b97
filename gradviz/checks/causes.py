"""Which finding explains which: that one carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gradviz.checks.finding import SEVERITIES, Finding
from gradviz.checks.words import Names


class Explained(NamedTuple):
    """A finding, and ids of checks whose findings explain it: any of theirs, or only
    one about the same names or more.
    """

    finding: Finding
    by: Names = ()
    by_same_names: Names = ()


def joined(explained: Sequence[Explained]) -> list[Finding]:
    """The findings without those that another one explains, which carries them and is
    as bad as the worst of them.
    """
    causes = {
        i: cause
        for i in range(len(explained))
        if (cause := _cause(explained, i)) is not None
    }
    first = [_first(causes, i) for i in range(len(explained))]

    return [
        _with(
            explanation.finding,
            [explained[j].finding for j in range(len(explained)) if first[j] == i != j],
        )
        for i, explanation in enumerate(explained)
        if first[i] == i
    ]


def _cause(explained: Sequence[Explained], i: int) -> int | None:
    """The finding that explains another one; of several the worst, and of these one
    about the same.
    """
    finding, by, by_same_names = explained[i]
    mine, causes = set(finding.names), dict[int, Finding]()
    for j, (other, _, _) in enumerate(explained):
        same = bool(mine) and mine.issubset(other.names)
        if j != i and (other.id in by or (other.id in by_same_names and same)):
            causes[j] = other

    def rank(j: int) -> tuple[int, bool]:
        return SEVERITIES.index(causes[j].severity), mine.isdisjoint(causes[j].names)

    return min(causes, key=rank, default=None)


def _first(causes: Mapping[int, int], i: int) -> int:
    """The finding at the beginning of the chain; where that is a circle, the finding
    stays for itself.
    """
    seen = [i]
    while seen[-1] in causes:
        following = causes[seen[-1]]
        if following in seen:
            return i
        seen.append(following)
    return seen[-1]


def _with(finding: Finding, consequences: Sequence[Finding]) -> Finding:
    worst = min(
        (finding, *consequences), key=lambda finding: SEVERITIES.index(finding.severity)
    ).severity
    return replace(
        finding, severity=worst, consequences=(*finding.consequences, *consequences)
    )
