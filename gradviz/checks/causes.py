"""Which finding explains which: that one carries it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradviz.checks.finding import SEVERITIES, Finding


def badness(finding: Finding) -> int:
    """0 for the worst."""
    return SEVERITIES.index(finding.severity)


def joined(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those that another one explains, which carries them and is
    as bad as the worst of them.

    A finding is explained by any of the checks that it `follows`; and by those that it
    `repeats`, where they tell of the same names or more.
    """
    chains: dict[int, list[Finding]] = {}
    for i, finding in enumerate(findings):
        chains.setdefault(_first(findings, i), []).append(finding)

    carried = []
    for first, chain in sorted(chains.items()):
        others = tuple(each for each in chain if each is not findings[first])
        worst = min(chain, key=badness).severity
        carried.append(replace(findings[first], severity=worst, consequences=others))
    return carried


def _cause(findings: Sequence[Finding], i: int) -> int | None:
    """The finding that explains another one; of several the worst, and of these one
    about the same.
    """
    finding, names = findings[i], set(findings[i].names)
    causes: dict[int, tuple[int, bool]] = {}
    for j, other in enumerate(findings):
        explains = other.id in finding.follows
        if names and names.issubset(other.names):
            explains |= other.id in finding.repeats
        if explains and j != i:
            causes[j] = badness(other), names.isdisjoint(other.names)
    return min(causes, key=causes.__getitem__, default=None)


def _first(findings: Sequence[Finding], i: int) -> int:
    """The finding at the beginning of the chain; where that is a circle, the finding
    stays for itself.
    """
    seen = [i]
    while (cause := _cause(findings, seen[-1])) is not None:
        if cause in seen:
            return i
        seen.append(cause)
    return seen[-1]
