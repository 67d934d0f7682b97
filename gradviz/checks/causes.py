"""Which finding explains which: that one carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradviz.checks.finding import SEVERITIES, Finding
from gradviz.checks.words import Names


def badness(finding: Finding) -> int:
    """0 for the worst."""
    return SEVERITIES.index(finding.severity)


def joined(
    findings: Sequence[Finding], same_names: Mapping[str, Names]
) -> list[Finding]:
    """The findings without those that another one explains, which carries them and is
    as bad as the worst of them.

    A finding is explained by any of the checks that it `follows`; and by those of
    `same_names`, by id, where they tell of the same names or more.
    """
    chains: dict[int, list[Finding]] = {}
    for i, finding in enumerate(findings):
        chains.setdefault(_first(findings, same_names, i), []).append(finding)

    carried = []
    for first, chain in sorted(chains.items()):
        others = tuple(each for each in chain if each is not findings[first])
        worst = min(chain, key=badness).severity
        carried.append(replace(findings[first], severity=worst, consequences=others))
    return carried


def _cause(
    findings: Sequence[Finding], same_names: Mapping[str, Names], i: int
) -> int | None:
    """The finding that explains another one; of several the worst, and of these one
    about the same.
    """
    finding, names = findings[i], set(findings[i].names)
    causes: dict[int, tuple[int, bool]] = {}
    for j, other in enumerate(findings):
        same = bool(names) and names.issubset(other.names)
        by_names = same and other.id in same_names.get(finding.id, ())
        if j != i and (by_names or other.id in finding.follows):
            causes[j] = badness(other), names.isdisjoint(other.names)
    return min(causes, key=causes.__getitem__, default=None)


def _first(findings: Sequence[Finding], same_names: Mapping[str, Names], i: int) -> int:
    """The finding at the beginning of the chain; where that is a circle, the finding
    stays for itself.
    """
    seen = [i]
    while (cause := _cause(findings, same_names, seen[-1])) is not None:
        if cause in seen:
            return i
        seen.append(cause)
    return seen[-1]
