"""Which finding explains which: that one carries it."""

from __future__ import annotations

from collections.abc import Sequence
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
    consequences: dict[int, list[Finding]] = {}
    for i, explanation in enumerate(explained):
        first = _first(explained, i)
        members = consequences.setdefault(first, [])
        if first != i:
            members.append(explanation.finding)

    findings = []
    for i in sorted(consequences):
        finding, others = explained[i].finding, consequences[i]
        worst = min((finding, *others), key=_rank).severity
        others = [*finding.consequences, *others]
        findings.append(replace(finding, severity=worst, consequences=tuple(others)))
    return findings


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _cause(explained: Sequence[Explained], i: int) -> int | None:
    """The finding that explains another one; of several the worst, and of these one
    about the same.
    """
    finding, by, by_same_names = explained[i]
    causes, names = dict[int, tuple[int, bool]](), set(finding.names)
    for j, (other, *_) in enumerate(explained):
        same = bool(names) and names.issubset(other.names)
        if other.id in by or (same and other.id in by_same_names):
            causes[j] = _rank(other), names.isdisjoint(other.names)
    causes.pop(i, None)
    return min(causes, key=causes.__getitem__, default=None)


def _first(explained: Sequence[Explained], i: int) -> int:
    """The finding at the beginning of the chain; where that is a circle, the finding
    stays for itself.
    """
    seen = [i]
    while (cause := _cause(explained, seen[-1])) is not None:
        if cause in seen:
            return i
        seen.append(cause)
    return seen[-1]
