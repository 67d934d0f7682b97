"""The registry of health checks, and running them.

A check is one function: it takes `BackwardCall` and yields what it found. Its docstring
is its page (see `pages`). Adding a check is writing one function with `@check(...)` in
one of the family modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gradviz import errors
from gradviz.checks.call import BackwardCall
from gradviz.checks.causes import badness, joined
from gradviz.checks.excerpt import excerpt
from gradviz.checks.finding import Finding, Findings, Severity
from gradviz.checks.run import Event, Kind
from gradviz.checks.words import Names, code, line, listed, places, verb, where as place
from gradviz.errors import FormatError, did_you_mean
from gradviz.graph import Node, SourceLine
from gradviz.graph.amounts import why_not_shown
from gradviz.graph.origins import forward_name, own_line
from gradviz.rank import rank
from gradviz.source.statements import written_at
from gradviz.wording import one_line

FAMILIES = (
    "roots",
    "cuts",
    "parameters",
    "leaves",
    "updates",
    "optimizers",
    "saved",
    "history",
    "steps",
    "order",
    "clipping",
    "loss_inputs",
    "broadcasts",
    "zeros",
    "misuse",
    "nonfinite",
    "gradients",
    "memory",
    "raised",
)
"""Modules of `checks.rules`, which hold the checks, in the order in which checks are listed."""


class Diagnosis(NamedTuple):
    """What a check yields. `severity` only where it differs from the check's own.

    `source` is the line of the user's that has to change, and `part` the code in it
    that matters; without a `source` it is the line of the first node, if `where` names
    that. A leaf has no line; errors and warnings must have one. `where` is for what
    says more than that line, or than the place of the first node. `follows` are ids of
    checks: where one of them has found something in the same run, this is told as its
    consequence.
    """

    summary: str
    names: Names
    why: str
    fix: str
    nodes: tuple[int, ...] = ()
    severity: Severity | None = None
    source: SourceLine | None = None
    part: str = ""
    follows: Names = ()
    where: str = ""


_FIELDS = {"nodes", "severity", "part", "follows", "where"}


class Row(NamedTuple):
    """What is said of one kind of finding. {names} are those it is about, with
    {is_}, {has}, {do}, {them} for one or several; {code} is the line, {line} its place,
    {text} its code alone; other words are given.
    """

    summary: str
    why: str
    fix: str

    def filled(
        self,
        names: Names,
        source: SourceLine | None = None,
        *given: object,
        **words: Any,
    ) -> Diagnosis:
        """The same with the words filled in, of the things with these names, at a line.
        `words` that are fields of a diagnosis become these.
        """
        fields = {key: words.pop(key) for key in _FIELDS.intersection(words)}
        words = {
            "names": listed(names),
            "is_": verb(names or 1, "is", "are"),
            "has": verb(names or 1, "has", "have"),
            "do": verb(names or 1, "does", "do"),
            "them": verb(names or 1, "it", "them"),
            "code": code(source),
            "line": line(source) or code(None),
            "text": written_at(source) or code(source),
        } | words
        summary, why, fix = (part.format(*given, **words) for part in self)
        return Diagnosis(summary, names, why, fix, source=source, **fields)

    def of(self, event: Event, line: SourceLine | None = None) -> Diagnosis:
        """The same of an event at its line, or else at this one: {0} and so on are what
        it is about, {times} how often it came in a row.
        """
        source, about = event.source or line, map(one_line, event.about)
        return self.filled(event.about[:1], source, *about, times=event.times)


def told(context: BackwardCall, rows: Mapping[Kind, Row]) -> Iterator[Diagnosis]:
    """What is said of the events of a run that there are rows for."""
    for event in context.run.events(*rows):
        yield rows[event.kind].of(event)


Diagnoses = Iterator[Diagnosis]
"""What a check yields."""
Function = Callable[[BackwardCall], Diagnoses]


class Check(NamedTuple):
    """One registered check. `needs_values` when it reads numbers, and so runs only when
    asked to.

    `repeats` are ids of checks: what one of them says of the same names, or of more,
    explains what this check says.
    `once`: of several graphs, only the first is told of. `whole_run`: it judges the run,
    and is asked in the end. `reads_saved` when it has nothing to read where torch does
    not show saved tensors.
    """

    id: str
    severity: Severity
    summary: str
    function: Function
    needs_values: bool = False
    repeats: Names = ()
    once: bool = False
    whole_run: bool = False
    reads_saved: bool = False


_CHECKS: dict[str, Check] = {}


def check(
    id: str, severity: Severity, summary: str, **options: Any
) -> Callable[[Function], Function]:
    """Registers the function below as the check `id`. `options` are further fields of
    `Check`.
    """

    def register(function: Function) -> Function:
        _CHECKS[id] = Check(id, severity, summary, function, **options)
        return function

    return register


def checks() -> tuple[Check, ...]:
    """Every check, in the order they are listed, whichever module was imported first."""
    families = [f"gradviz.checks.rules.{family}" for family in FAMILIES]
    for family in families:
        importlib.import_module(family)

    def position(rule: Check) -> int:
        return families.index(rule.function.__module__)

    return tuple(sorted(_CHECKS.values(), key=position))


def chosen(only: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks named by `only`, or all, without those in `ignore`. Raises FormatError
    for an unknown id.
    """
    every = {rule.id: rule for rule in checks()}
    only, ignore = set(only), set(ignore)
    for id in sorted((only | ignore) - every.keys()):
        raise FormatError(
            f"there is no check {id!r}. {did_you_mean(id, every, what='checks')}"
        )
    wanted = (only or set(every)) - ignore
    return tuple(rule for id, rule in every.items() if id in wanted)


_VALUES = "they read tensor values. Turn them on with --values, in Python values=True"


def run(
    calls: Sequence[BackwardCall],
    *,
    only: Iterable[str] = (),
    ignore: Iterable[str] = (),
    values: bool = False,
) -> Findings:
    """Run the chosen checks on each graph of one run of the user's code. What several
    graphs show is said once.
    """
    only = tuple(only)
    ran, skipped = list[str](), list[tuple[str, str]]()
    values = values or any(call.values or call.gradients for call in calls)
    found: dict[tuple[object, ...], Finding] = {}

    for rule in chosen(only, ignore):
        reason = _why_not(rule, calls, values)
        try:
            if not reason:
                _add(rule, calls, found)
        except Exception as error:  # the other checks are as good as before
            reason = errors.bug_told(error)
        if reason:
            skipped.append((rule.id, reason))
        else:
            ran.append(rule.id)

    return Findings(
        tuple(sorted(joined(list(found.values())), key=badness)),
        tuple(ran),
        tuple(call.shown for call in calls),
        tuple(call.call for call in calls),
        (*skipped, *_not_computed(calls)),
    )


def _why_not(rule: Check, calls: Sequence[BackwardCall], values: bool) -> str:
    """Why a check has nothing to read, "" where it has."""
    if rule.needs_values and not values:
        return _VALUES
    reasons = [why_not_shown(call.graph) for call in calls if rule.reads_saved]
    return next(filter(None, reasons), "").partition(",")[0]


def _not_computed(calls: Sequence[BackwardCall]) -> Iterator[tuple[str, str]]:
    """Why gradients could not be computed, each reason once."""
    problems = [call.gradients.problem for call in calls if call.gradients is not None]
    for problem in dict.fromkeys(filter(None, problems)):
        yield "gradients", one_line(problem)


def _add(
    rule: Check, calls: Sequence[BackwardCall], found: dict[tuple[object, ...], Finding]
) -> None:
    """Add what a check says of each graph; one that is told `once`, only of the first
    that it says something of.
    """
    for call in calls:
        if rule.whole_run and not call.is_last:
            continue
        items = list(rule.function(call))
        for item in items:
            new = _finding(rule, item, call)
            # a line that has to be changed is told once, for all names
            about = new.names if new.code is None else new.fix
            key = rule.id, about, new.where
            before = found.get(key, new)
            names = dict.fromkeys((*before.names, *new.names))
            found[key] = replace(before, names=tuple(names))
        if rule.once and items:
            return


def _finding(rule: Check, item: Diagnosis, call: BackwardCall) -> Finding:
    node = call.graph.nodes[item.nodes[0]] if item.nodes else None
    node_line = own_line(node) if node is not None else None
    where = item.where or line(item.source)
    if node is not None and not where and node.id not in call.graph.leaf_of:
        where = place(call.graph, node.id)

    source = item.source or (node_line if line(node_line) in where else None)
    severity = item.severity or rule.severity
    library = _in_library(node, source)
    if library is not None and severity != "error":
        severity, source = "note", library
        if line(library) not in where:
            where = places(where, line(library))

    # `torch.sqrt(x)` calls what the node is named by
    operation = forward_name(node) if node is not None else ""
    return Finding(
        rule.id,
        severity,
        item.summary,
        item.names,
        where,
        item.why,
        item.fix,
        item.nodes,
        call.call,
        excerpt(source, item.part or operation),
        item.follows,
        rule.repeats,
        getattr(rank(), "number", None),
    )


def _in_library(node: Node | None, source: SourceLine | None) -> SourceLine | None:
    """The line of an installed library that a finding is about; None where a line of
    the user's causes it.
    """
    if source is not None and source.package:
        return source
    if node is None or node.source is None or not node.source.package:
        return None
    called = source is None or source == node.script_line
    return node.source if called else None
