"""How findings are written for the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import repeat

from gradviz.checks.excerpt import Excerpt, code_lines
from gradviz.checks.finding import Finding, Findings, Severity
from gradviz.checks.words import CODE, place_in, places
from gradviz.report import labels
from gradviz.report.rich_parts import Console, ConsoleOptions, RenderResult, Text
from gradviz.wording import clip, one_line, plural

WIDTH = 80
INDENT = 11
SHOWN = 3
"""Names that a finding lists before it counts the others, unless all are asked for."""
FIRST, FURTHER = 20, 6
"""Lines of the first finding, and of each further one, unless all is asked for."""
COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}
_LEAST = {"names": 0, "effect": 0, "why": 0, "code": 1, "fix": 2}
"""What is shortened first where a finding is too long, and how many lines of it stay.
"""
_Rows = dict[str, list[str]]


class FindingsTable:
    """The report for rich, as wide as the terminal, at most `WIDTH`. `verbose`: with
    all names, and the checks that ran.
    """

    def __init__(self, findings: Findings, verbose: bool = False) -> None:
        self._found, self._verbose = findings, verbose

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        width = min(WIDTH, options.max_width)
        for line, style in report(self._found, width, self._verbose):
            color = f"bold {COLORS[style]}" if style in COLORS else style
            yield Text(line, color, overflow="fold")


def report(
    findings: Findings, width: int = WIDTH, verbose: bool = False
) -> Iterator[tuple[str, str]]:
    """The report line by line, each with the style it should have: a severity, "bold",
    "dim" or "".

    Notes below an alarm are left out unless it is `verbose`.
    """
    alarms = [finding for finding in findings if finding.severity != "note"]
    shown = list(findings) if verbose else alarms or list(findings)
    shortened = len(shown) < len(findings)

    for number, finding in enumerate(shown, 1):
        heading = wrapped(f"{number}. {_heading(finding)}", width - 3)
        heading[1:] = [f"   {line}" for line in heading[1:]]
        rows = _rows(finding, width, verbose)
        if not verbose:
            room = FIRST if number == 1 else FURTHER
            shortened |= _shorten(rows, room - len(heading))
        yield from zip(heading, repeat(finding.severity))
        for lines in rows.values():
            yield from zip(lines, repeat(""))
        yield "", ""

    checked = _checked(findings, verbose)
    if shortened:
        checked += " Shortened: --verbose shows all."
    yield from zip(wrapped(checked, width), repeat("dim"))

    total = findings.totals or "Nothing found."
    if findings.failed and not findings.totals:
        failed = one_line(findings.failed)
        total = f"The script failed, and no check explains it: {failed}"
    yield from zip(wrapped(total, width), repeat("bold"))


def _shorten(rows: _Rows, most: int) -> bool:
    """Whether something of the rows had to go."""
    over = sum(map(len, rows.values())) - most
    shortened = over > 0
    for word, least in _LEAST.items():
        lines = rows[word]
        left = max(least, len(lines) - max(0, over))
        if left < len(lines):
            over -= len(lines) - left
            del lines[left:]
            if lines and word != "code":
                lines[-1] = f"{lines[-1][: WIDTH - 2]} …"
    return shortened


def _rows(finding: Finding, width: int, verbose: bool) -> _Rows:
    """All of a finding but its head, part by part."""
    code = finding.code
    # other findings are of the whole run
    of_a_call = finding.nodes or finding.severity == "error"
    late = of_a_call and (finding.call or 0) > 1
    shown = code_lines(code, width - INDENT) if code is not None else ()
    texts = {
        "names": [_names(finding, verbose)],
        "where": [
            places(finding.where, f"backward call {finding.call}" if late else "")
        ],
        "code": [],
        "why": [_shorter(finding.why, code)],
        "effect": list(consequences(finding)),
        "fix": [_shorter(finding.fix, code)],
    }

    rows: _Rows = {}
    for word, parts in texts.items():
        rows[word] = []
        for text in filter(None, parts):
            title = f"   {word}:".ljust(INDENT)
            rows[word] += wrapped(title + one_line(text), width, " " * INDENT)
    rows["code"] = [" " * INDENT + line for line in shown]
    return rows


def _names(finding: Finding, verbose: bool) -> str:
    """The first names of a finding; none where its summary has the only one."""
    names = finding.names
    if len(names) == 1 and names[0] in finding.summary:
        return ""
    shown = list(names if verbose else names[:SHOWN])
    if len(shown) < len(names):
        shown.append(labels.more(len(names) - SHOWN))
    return ", ".join(shown)


def _heading(finding: Finding) -> str:
    """How bad it is, on which rank, what it is, where, and the check that says so."""
    rank = f" on rank {finding.rank}" if finding.rank is not None else ""
    summary = one_line(finding.summary)
    return f"{finding.severity}{rank}: {summary}  [{finding.id}]"


def consequences(finding: Finding) -> Iterator[str]:
    """One line for the findings of each check that follow from this one."""
    groups: dict[str, list[Finding]] = {}
    for consequence in finding.consequences:
        groups.setdefault(consequence.id, []).append(consequence)

    for id, (first, *others) in groups.items():
        text = first.summary
        if first.code is not None and first.code != finding.code:
            text += f", {first.where}"
        more = f", {labels.more(len(others))}" if others else ""
        yield f"{_shorter(text, finding.code)}{more}  [{id}]"


def _shorter(text: str, code: Excerpt | None) -> str:
    """The same without the code of the line that is shown above it, and with `line 12`
    for lines of the file that `where` names.
    """
    if code is None:
        return text
    line = str(code.line)
    shown = f"{line} (`{clip(code.text.strip(), CODE)}`)"
    before = re.escape(place_in(code.file, code.line).removesuffix(line))
    return re.sub(rf"(?<![\w/.]){before}(?=\d)", "line ", text.replace(shown, line))


def wrapped(line: str, width: int, indent: str = "") -> list[str]:
    """The lines of a paragraph."""
    room = max(20 + len(indent), width)
    lines = textwrap.wrap(line, room, subsequent_indent=indent, break_on_hyphens=False)
    return lines or [""]


def _checked(findings: Findings, verbose: bool) -> str:
    graphs = [graph for graph in findings.graphs if graph.nodes]
    nodes = sum(len(graph.nodes) for graph in graphs)
    read = "no graph"
    if graphs:
        read = f"{plural(len(graphs), 'graph')} of {plural(nodes, 'node')}"
    ids = f": {', '.join(findings.checked)}" if verbose else ""
    text = f"Ran {plural(len(findings.checked), 'check')} on {read}{ids}."

    by_reason: dict[str, list[str]] = {}
    for id, reason in findings.skipped:
        by_reason.setdefault(reason, []).append(id)
    for reason, skipped in by_reason.items():
        named = verbose or len(skipped) == 1
        which = ", ".join(skipped) if named else plural(len(skipped), "check")
        text += f" {which} skipped: {reason}."

    return " ".join([text, *findings.notes])
