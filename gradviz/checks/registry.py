"""The registry of health checks, and running them.

A check is one function: it takes `BackwardCall` and yields what it found. Its docstring
is its page (see `output`). Adding a check is writing one function with `@check(...)` in
one of the family modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.causes import Explained, joined
from gradviz.checks.edit import Edit
from gradviz.checks.excerpt import excerpt
from gradviz.checks.finding import SEVERITIES, Finding, Findings, Severity
from gradviz.checks.words import Names, code, line, listed, places, verb, where as place
from gradviz.errors import FormatError, did_you_mean
from gradviz.graph import Node, SourceLine
from gradviz.graph.amounts import why_not_shown
from gradviz.graph.origins import own_line

FAMILIES = (
    "roots",
    "cuts",
    "parameters",
    "leaves",
    "updates",
    "optimizers",
    "invariants",
    "saved",
    "history",
    "steps",
    "order",
    "loss_inputs",
    "broadcasts",
    "misuse",
    "warned",
    "nonfinite",
    "gradients",
    "zeros",
    "memory",
    "notes",
    "raised",
    "ranks",
)
"""Modules of this package that hold checks, in the order in which checks are listed."""


class Diagnosis(NamedTuple):
    """What a check yields. `severity` only where it differs from the check's own.

    `source` is the line of the user's that has to change, and `part` the code in it
    that matters; without a `source` it is the line of the first node, if `where` names
    that. `where` is for what says more than that line, or than the place of the first
    node. `follows` are ids of checks: where one of them has found something in the same
    run, this is told as its consequence. `edit` is `fix` as data.
    """

    summary: str
    names: Names
    why: str
    fix: str
    nodes: tuple[int, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    severity: Severity | None = None
    source: SourceLine | None = None
    part: str = ""
    follows: Names = ()
    where: str = ""
    edit: Edit | None = None


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
        **words: object,
    ) -> Diagnosis:
        """The same with the words filled in, of the things with these names, at a line."""
        words = {
            "names": listed(names),
            "is_": verb(names, "is", "are"),
            "has": verb(names, "has", "have"),
            "do": verb(names, "does", "do"),
            "them": verb(names, "it", "them"),
            "code": code(source),
            "line": line(source),
            "text": source.text if source else "",
        } | words
        summary, why, fix = (part.format(*given, **words) for part in self)
        return Diagnosis(summary, names, why, fix, source=source)


Diagnoses = Iterator[Diagnosis]
"""What a check yields."""
Function = Callable[[BackwardCall], Diagnoses]


class Check(NamedTuple):
    """One registered check. `needs_values` when it reads numbers, and so runs only when
    asked to.

    `follows` are ids of checks: what one of them says of the same names, or of more,
    explains what this check says.
    `once`: of several graphs, only the first is told of. `whole_run`: it judges the run,
    and is asked in the end. `reads_saved` when it has
    nothing to read where torch does not show saved tensors.
    """

    id: str
    severity: Severity
    summary: str
    function: Function
    needs_values: bool = False
    follows: Names = ()
    ranks: bool = False  # it runs on the merged graph of several ranks, and on no other
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
    modules = [
        importlib.import_module(f"gradviz.checks.rules.{family}").__name__
        for family in FAMILIES
    ]
    return tuple(
        sorted(
            _CHECKS.values(),
            key=lambda registered: modules.index(registered.function.__module__),
        )
    )


def chosen(
    only: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> tuple[Check, ...]:
    """The checks named by `only`, or all, without those in `ignore`. Raises FormatError
    for an unknown id.
    """
    known = {registered.id: registered for registered in checks()}
    only, ignore = set(only), set(ignore)
    for id in sorted((only | ignore) - known.keys()):
        raise FormatError(
            f"there is no check {id!r}. {did_you_mean(id, known, what='checks')}"
        )
    return tuple(
        known[id] for id in known if id not in ignore and (id in only or not only)
    )


def run(
    context: Sequence[BackwardCall],
    *,
    only: Iterable[str] = (),
    ignore: Iterable[str] = (),
    values: bool = False,
) -> Findings:
    """Run the chosen checks on each graph of one run of the user's code. What several
    graphs show is said once.

    Checks on several ranks run on context of several ranks, and no others do.
    """
    diagnoses: dict[tuple[object, ...], Explained] = {}
    ran, skipped = [], []
    together = any(about.ranks is not None for about in context)
    readable = [
        about
        for about in context
        if about.values is not None or about.gradients is not None
    ]
    only = tuple(only)

    for rule in chosen(only, ignore):
        if rule.ranks != together:
            if rule.id in only:
                skipped.append(
                    (rule.id, "compares ranks: gradviz merge net.rank*.json")
                )
            continue
        reason = _why_not(rule, context, values or bool(readable))
        if reason:
            skipped.append((rule.id, reason))
            continue
        ran.append(rule.id)
        for explained in _explained(
            rule, (readable or context) if rule.needs_values else context
        ):
            # a line that has to be changed is told once, for all names
            finding = explained.finding
            key = (
                rule.id,
                finding.names if finding.code is None else finding.fix,
                finding.where,
            )
            known = diagnoses.get(key, explained)
            names = tuple(dict.fromkeys((*known.finding.names, *finding.names)))
            diagnoses[key] = known._replace(finding=replace(known.finding, names=names))

    ranked = sorted(
        joined(list(diagnoses.values())),
        key=lambda finding: SEVERITIES.index(finding.severity),
    )
    graphs, calls = (
        tuple(about.graph for about in context),
        tuple(about.call for about in context),
    )

    return Findings(
        tuple(ranked),
        tuple(ran),
        graphs,
        calls,
        tuple(skipped),
    )


def _why_not(
    rule: Check,
    context: Sequence[BackwardCall],
    values: bool,
) -> str:
    """Why a check has nothing to read, "" where it has."""
    if rule.needs_values and not values:
        return (
            "they read tensor values. Turn them on with --values, in Python values=True"
        )
    if rule.reads_saved:
        return next(
            filter(None, (why_not_shown(about.graph) for about in context)), ""
        ).partition(",")[0]
    return ""


def _explained(
    rule: Check,
    context: Sequence[BackwardCall],
) -> Iterator[Explained]:
    """What a check says of each graph; one that is told `once`, only of the first that
    it says something of.
    """
    for about in context:
        if rule.whole_run and not about.is_last:
            continue
        items = list(rule.function(about))
        for item in items:
            yield Explained(
                _finding(rule, item, about),
                item.follows,
                rule.follows,
            )
        if rule.once and items:
            return


def _finding(rule: Check, item: Diagnosis, context: BackwardCall) -> Finding:
    node, where = (
        context.graph.nodes[item.nodes[0]] if item.nodes else None,
        item.where or line(item.source),
    )
    made = own_line(node) if node is not None else None
    if node is not None and not where and node.id not in context.graph.leaf_of:
        where = place(context.graph, node.id)

    source = item.source or (made if line(made) in where else None)
    severity = item.severity or rule.severity
    library = _in_library(node, source)

    if library is not None and severity != "error":
        severity, source = "note", library
        if line(library) not in where:
            where = places(where, line(library))

    return Finding(
        rule.id,
        severity,
        item.summary,
        item.names,
        where,
        item.why,
        item.fix,
        nodes=item.nodes,
        edges=item.edges,
        call=context.call,
        code=excerpt(
            source,
            item.part,
            node if source in (made, library) else None,
        ),
        edit=item.edit,
    )


def _in_library(
    node: Node | None,
    source: SourceLine | None,
) -> SourceLine | None:
    """The line of an installed library that a finding is about; None where a line of
    the user's causes it.
    """
    if source is not None and source.package:
        return source
    if node is None or node.source is None or not node.source.package:
        return None
    called = source is None or source == node.script_line
    return node.source if called else None
