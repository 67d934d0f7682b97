"""Words the findings of the health checks: a report for the terminal, and the lines under a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from gradviz.analysis.health.finding import SEVERITIES, Finding, Findings, Severity
from gradviz.analysis.health.registry import Check
from gradviz.render import labels

WIDTH = 100
COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}


class FindingsTable:
    """The report for rich, as wide as the terminal, at most `WIDTH`."""

    def __init__(self, found: Findings) -> None:
        self._found = found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line, style in report(self._found, min(WIDTH, options.max_width)):
            yield Text(line, f"bold {COLORS[style]}" if style in COLORS else style, overflow="fold")


def report(found: Findings, width: int = WIDTH) -> Iterator[tuple[str, str]]:
    """The report line by line, each with the style it should have: a severity, "bold", "dim" or ""."""
    for i, finding in enumerate(found):
        if i:
            yield "", ""
        yield from _finding(finding, i + 1, width)
    if len(found):
        yield "", ""
    yield from ((line, "dim") for line in _wrapped(_checked(found), width))
    yield totals(found), "bold"


def _finding(finding: Finding, number: int, width: int) -> Iterator[tuple[str, str]]:
    head = f"{number}. {finding.severity}: {labels.one_line(finding.summary)}  [{finding.id}]"
    yield head, finding.severity
    rows = [("where", finding.where), ("why", finding.why), ("do", finding.fix)]
    if finding.call is not None and finding.call > 1:
        rows.insert(1, ("when", f"backward call {finding.call}"))
    if len(finding.names) > 1 or (finding.names and finding.names[0] not in finding.summary):
        rows.insert(
            0,
            (
                "names",
                ", ".join(finding.names[:20])
                + (f", {labels.more(len(finding.names) - 20)}" if len(finding.names) > 20 else ""),
            ),
        )
    for word, what in rows:
        if what:
            indent = " " * 10
            wrapped = _wrapped(labels.one_line(what), width - len(indent))
            yield f"   {word + ':':<6} {wrapped[0]}", ""
            yield from ((indent + line, "") for line in wrapped[1:])


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, max(20, width), break_long_words=False, break_on_hyphens=False) or [""]


def _checked(found: Findings) -> str:
    graphs = [graph for graph in found.graphs if graph.nodes]
    nodes = sum(len(graph.nodes) for graph in graphs)
    what = f"{labels.plural(len(graphs), 'graph')} of {labels.plural(nodes, 'node')}" if graphs else "no graph"
    every = f": {', '.join(found.checked)}" if not len(found) and not found.failed else ""
    line = f"Ran {labels.plural(len(found.checked), 'check')} on {what}{every}."
    reasons: dict[str, list[str]] = {}
    for id, reason in found.skipped:
        reasons.setdefault(reason, []).append(id)
    if reasons:
        line += " Not run: " + "; ".join(f"{', '.join(ids)} ({reason})" for reason, ids in reasons.items()) + "."
    return line


def totals(found: Findings) -> str:
    """`1 error, 2 notes`, or that nothing was found."""
    counts = {severity: sum(one.severity == severity for one in found) for severity in SEVERITIES}
    words = [labels.plural(count, severity) for severity, count in counts.items() if count]
    if words:
        return ", ".join(words)
    return (
        f"The script failed, and no check explains it: {labels.one_line(found.failed)}"
        if found.failed
        else "Nothing found."
    )


def catalogue(every: tuple[Check, ...]) -> Iterator[str]:
    """One line for each check."""
    width = max(len(one.id) for one in every)
    for one in every:
        values = "  (with --values)" if one.needs_values else ""
        yield f"{one.id:<{width}}  {one.severity:<7}  {one.summary}{values}"
