"""The registry of health checks, and running them.

A check is one function: it takes `Evidence` and yields what it found. Its docstring, with the example in it, is its page in
the documentation. Adding a check is writing one function with `@check(...)` in one of the family modules.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gradviz.analysis.health.finding import SEVERITIES, Finding, Findings, Severity
from gradviz.errors import FormatError, did_you_mean
from gradviz.evidence import Evidence

FAMILIES = ("roots", "parameters", "saved", "history", "steps", "nonfinite", "numbers", "memory", "facts", "raised")
"""Modules of this package that hold checks, in the order in which checks are listed."""


class Found(NamedTuple):
    """What a check yields. `severity` only where it differs from the check's own."""

    summary: str
    names: tuple[str, ...]
    where: str
    why: str
    fix: str
    nodes: tuple[int, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    severity: Severity | None = None


Function = Callable[[Evidence], Iterator[Found]]


class Check(NamedTuple):
    """One registered check. `needs_values` when it reads numbers, and so runs only when asked to."""

    id: str
    severity: Severity
    summary: str
    function: Function
    needs_values: bool = False


_CHECKS: dict[str, Check] = {}


def check(id: str, severity: Severity, summary: str, *, needs_values: bool = False) -> Callable[[Function], Function]:
    """Registers the function below as the check `id`."""

    def register(function: Function) -> Function:
        if id in _CHECKS and _CHECKS[id].function.__module__ != function.__module__:
            raise ValueError(f"there are two checks {id!r}")
        _CHECKS[id] = Check(id, severity, summary, function, needs_values)
        return function

    return register


def checks() -> tuple[Check, ...]:
    """Every check, in the order they are listed."""
    for family in FAMILIES:
        importlib.import_module(f"gradviz.analysis.health.{family}")
    return tuple(_CHECKS.values())


def chosen(only: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks named by `only`, or all, without those in `ignore`. Raises FormatError for an unknown id."""
    known = {one.id: one for one in checks()}
    only, ignore = set(only), set(ignore)
    for id in sorted(only | ignore):
        if id not in known:
            raise FormatError(f"there is no check {id!r}. {did_you_mean(id, known, what='checks')}")
    return tuple(one for one in known.values() if (not only or one.id in only) and one.id not in ignore)


def run(
    evidence: Sequence[Evidence], *, only: Iterable[str] = (), ignore: Iterable[str] = (), values: bool = False
) -> Findings:
    """Run the chosen checks on each graph of one run of the user's code. What several graphs show is said once."""
    found: dict[tuple[object, ...], Finding] = {}
    ran, skipped = [], []
    for one in chosen(only, ignore):
        readable = [about for about in evidence if one.id == "nonfinite" and about.values is not None]
        if one.needs_values and not values and not readable:
            skipped.append((one.id, "reads numbers: add --values"))
            continue
        ran.append(one.id)
        said = frozenset(finding.id for finding in found.values())
        for about in readable or evidence:
            about = replace(about, said=said) if about.raised is not None else about
            for finding in _findings(one, about):
                found.setdefault((one.id, finding.names, finding.where), finding)
    ranked = sorted(found.values(), key=lambda finding: SEVERITIES.index(finding.severity))
    graphs, calls = tuple(about.graph for about in evidence), tuple(about.call for about in evidence)
    return Findings(tuple(ranked), tuple(ran), graphs, calls, tuple(skipped))


def _findings(one: Check, evidence: Evidence) -> Iterator[Finding]:
    for item in one.function(evidence):
        made = Finding(one.id, item.severity or one.severity, *item[:5], item.nodes, item.edges)
        yield replace(made, call=evidence.call)


def example(one: Check) -> str:
    """The script in a check's docstring, which triggers it.

    >>> "backward()" in example(checks()[0])
    True
    """
    text = inspect.getdoc(one.function) or ""
    return text.partition("```python\n")[2].partition("```")[0]


def description(one: Check) -> str:
    """A check's docstring without the example."""
    return (inspect.getdoc(one.function) or "").partition("```python")[0].strip()
