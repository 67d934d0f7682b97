"""How findings and checks are written: a report and pages for the terminal, and a SARIF log for editors and CI.

A check's docstring is its page: the documentation, `gradviz check --explain` and the rules of a SARIF log are made from it.
SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from rich.cells import cell_len

from gradviz import __version__
from gradviz.checks.finding import Finding, Findings, Severity
from gradviz.checks.registry import Check, checks
from gradviz.checks.words import CODE, Excerpt, short_path
from gradviz.rank import named
from gradviz.report import labels
from gradviz.report.rich_parts import Console, ConsoleOptions, RenderResult, Text
from gradviz.wording import clip, notebook_of, one_line, place_text, plural

WIDTH = 80
INDENT = 11
SHOWN = 3
"""Names that a finding lists before it counts the others, unless all are asked for."""
COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}


class FindingsTable:
    """The report for rich, as wide as the terminal, at most `WIDTH`. `verbose`: with all names, and the checks that ran."""

    def __init__(self, findings: Findings, verbose: bool = False) -> None:
        self._found, self._verbose = findings, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line, style in report(self._found, min(WIDTH, options.max_width), self._verbose):
            yield Text(line, f"bold {COLORS[style]}" if style in COLORS else style, overflow="fold")


FIRST, FURTHER = 20, 6
"""Lines of the first finding, and of each further one, unless all is asked for."""
_LEAST = {"names": 0, "when": 0, "effect": 0, "why": 0, "code": 1, "fix": 2}
"""What is shortened first where a finding is too long, and how many lines of it stay."""
_Line = tuple[str, str]


def report(findings: Findings, width: int = WIDTH, verbose: bool = False) -> Iterator[_Line]:
    """The report line by line, each with the style it should have: a severity, "bold", "dim" or ""."""
    shortened = False
    for i, finding in enumerate(findings):
        if i:
            yield "", ""
        short = finding.severity == "note" and findings[0].severity != "note" and not verbose
        rows = _rows(finding, i + 1, width, verbose, short)
        whole = sum(map(len, rows.values()))
        if not verbose:
            _shorten(rows, FURTHER if i else FIRST)
        shortened |= sum(map(len, rows.values())) < whole
        yield from (line for lines in rows.values() for line in lines)
    if len(findings):
        yield "", ""
    checked = _checked(findings, verbose) + (" Shortened: --verbose shows all." if shortened else "")
    yield from ((line, "dim") for line in _wrapped(checked, width))
    nothing = f"The script failed, and no check explains it: {one_line(findings.failed)}"
    yield findings.totals or (nothing if findings.failed else "Nothing found."), "bold"


def _shorten(rows: dict[str, list[_Line]], most: int) -> None:
    for word, least in _LEAST.items():
        lines, over = rows[word], sum(map(len, rows.values())) - most
        left = max(least, len(lines) - max(0, over))
        if left < len(lines):
            kept = lines[:left]
            if kept and word != "code":
                kept[-1] = (f"{kept[-1][0][: WIDTH - 2]} …", kept[-1][1])
            rows[word] = kept


def _rows(finding: Finding, number: int, width: int, verbose: bool, short: bool) -> dict[str, list[_Line]]:
    """All of a finding, part by part; of a `short` one, as a note is below an error, what it is about and where."""
    head = f"{number}. {_heading(finding)}"
    rows: dict[str, list[_Line]] = {
        "head": [(f"{'   ' if i else ''}{line}", finding.severity) for i, line in enumerate(_wrapped(head, width - 3))],
        **{word: [] for word in ("names", "where", "code", "when", "why", "effect", "fix", "heals")},
    }
    if len(finding.names) > 1 or (finding.names and finding.names[0] not in finding.summary):
        rows["names"] += _row("names", _names(finding.names, verbose), width)
    rows["where"] += _row("where", finding.where, width)
    if short:
        return rows
    if finding.code is not None:
        rows["code"] += [(f"{'':{INDENT}}{line}", "") for line in code_lines(finding.code, width - INDENT)]
    if finding.call is not None and finding.call > 1:
        rows["when"] += _row("when", f"backward call {finding.call}", width)
    rows["why"] += _row("why", _shorter(finding.why, finding.code), width)
    for words in _consequences(finding):
        rows["effect"] += _row("effect", words, width)
    rows["fix"] += _row("fix", _shorter(finding.fix, finding.code), width)
    if finding.edit is not None and finding.edit.heals:
        changed = [f"- {finding.edit.source.text}", *(f"+ {line}" for line in finding.edit.new.splitlines())]
        rows["heals"] += (
            (f"{'' if i else '   heals:':<{INDENT}}{one_line(line)}", "") for i, line in enumerate(changed)
        )
    return rows


def _heading(finding: Finding) -> str:
    """How bad it is, on which ranks, what it is, and the check that says so."""
    ranks = finding.ranks or (() if finding.rank is None else (finding.rank,))
    where = f" on {named(ranks)}" if ranks else ""
    return f"{finding.severity}{where}: {one_line(finding.summary)}  [{finding.id}]"


def _consequences(finding: Finding) -> Iterator[str]:
    """One line for the findings of each check that follow from this one."""
    groups: dict[str, list[Finding]] = {}
    for consequence in finding.consequences:
        groups.setdefault(consequence.id, []).append(consequence)
    for id, members in groups.items():
        first = members[0]
        at = f", {first.where}" if first.code is not None and first.code != finding.code else ""
        more = f", {labels.more(len(members) - 1)}" if len(members) > 1 else ""
        yield f"{_shorter(first.summary + at, finding.code)}{more}  [{id}]"


def _row(word: str, what: str, width: int) -> Iterator[_Line]:
    for i, line in enumerate(_wrapped(one_line(what), width - INDENT) if what else []):
        yield f"{'' if i else f'   {word}:':<{INDENT}}{line}", ""


def _names(names: Sequence[str], verbose: bool) -> str:
    shown = names if verbose else names[:SHOWN]
    more = f", {labels.more(len(names) - len(shown))}" if len(names) > len(shown) else ""
    return ", ".join(shown) + more


def short_lines(findings: Findings) -> Iterator[str]:
    """A line for each finding, as compilers write them, for editors: `train.py:12:9: warning: ... [unused-parameter]`."""
    for finding in findings:
        code = finding.code
        place = f"{place_text(one_line(short_path(code.file)), code.line)}:{code.column}: " if code is not None else ""
        yield place + " ".join(_heading(finding).split())


def _shorter(text: str, code: Excerpt | None) -> str:
    """The same without the code of the line that is shown above it, and with `line 12` for lines of the file that `where` names."""
    if code is None:
        return text
    line, file = str(code.line), one_line(short_path(code.file))
    shown = f"{line} (`{clip(code.text.strip(), CODE)}`)"
    before = re.escape(place_text(file, code.line).removesuffix(line))
    return re.sub(rf"(?<![\w/.]){before}(?=\d)", "line ", text.replace(shown, line))


def code_lines(code: Excerpt, width: int) -> Iterator[str]:
    """The line as compilers show it: its number, its code without the indentation, and carets under what matters.

    >>> print(*code_lines(Excerpt("train.py", 12, "    y = x.detach() * 2", 9, 19), 40), sep="\\n")
    12 | y = x.detach() * 2
       |     ^^^^^^^^^^
    """
    number = str(code.line)
    room = max(20, width - len(number) - 3)
    indent = len(code.text) - len(code.text.lstrip())
    before = one_line(code.text[indent : code.column - 1].expandtabs(1))
    part = one_line(code.part.expandtabs(1))
    after = one_line(code.text[code.end_column - 1 :].expandtabs(1))
    if cell_len(before + part + after) > room:  # what matters, and what is before it as far as it fits
        after = ""
        part = part if cell_len(part) < room else f"{_fitting(part, room - 2)}…"
        left = room - cell_len(part) - 1
        before = before if cell_len(before) <= left else f"…{_fitting(before[::-1], left - 1)[::-1]}"
    yield f"{number} | {before}{part}{after}".rstrip()
    yield f"{'':{len(number)}} | {'':{cell_len(before)}}{'^' * cell_len(part)}"


def _fitting(text: str, cells: int) -> str:
    """As much of the beginning as fits; some letters take two cells."""
    taken = 0
    for i, letter in enumerate(text):
        taken += cell_len(letter)
        if taken > cells:
            return text[:i]
    return text


class _Wrapper(textwrap.TextWrapper):
    """Breaks a name that is longer than a line behind a dot, an underscore or a slash."""

    def _split(self, text: str) -> list[str]:
        chunks: list[str] = super()._split(text)
        long = (_NAME_PARTS.findall(chunk) if len(chunk) > self.width else [chunk] for chunk in chunks)
        return [part for parts in long for part in parts]


_NAME_PARTS = re.compile(r"[^._/]+[._/]*|[._/]+")


def _wrapped(line: str, width: int) -> list[str]:
    return _Wrapper(max(20, width), break_on_hyphens=False).wrap(line) or [""]


def _checked(findings: Findings, verbose: bool) -> str:
    graphs = [graph for graph in findings.graphs if graph.nodes]
    nodes = sum(len(graph.nodes) for graph in graphs)
    what = f"{plural(len(graphs), 'graph')} of {plural(nodes, 'node')}" if graphs else "no graph"
    every = f": {', '.join(findings.checked)}" if verbose else ""
    line = f"Ran {plural(len(findings.checked), 'check')} on {what}{every}."
    reasons: dict[str, list[str]] = {}
    for id, reason in findings.skipped:
        reasons.setdefault(reason, []).append(id)
    skipped = [
        f"{', '.join(ids) if verbose or len(ids) == 1 else plural(len(ids), 'check')} ({reason})"
        for reason, ids in reasons.items()
    ]
    if skipped:
        line += f" Not run: {'; '.join(skipped)}."
    return line + "".join(f" {note}" for note in findings.notes)


def catalogue(every: tuple[Check, ...]) -> Iterator[str]:
    """What each check says that there is, with its id and severity."""
    indent = max(len(check.id) for check in every) + 11
    for check in every:
        values = " (with --values)" if check.needs_values else ""
        for i, line in enumerate(_wrapped(check.summary + values, WIDTH - indent)):
            yield f"{'' if i else f'{check.id:<{indent - 9}}{check.severity}':<{indent}}{line}"


SECTIONS = {"found": "How it is found", "do": "What to do", "ignore": "When to ignore it"}
"""How the paragraphs of a docstring begin that are sections of their own."""


class Page(NamedTuple):
    """The page of one check. Texts are paragraphs with a blank line between; `example` is a script that has the fault."""

    check: Check
    meaning: str
    example: str
    found: str
    do: str
    ignore: str


def page(check: Check) -> Page:
    """What the docstring of a check says.

    >>> from gradviz.checks.registry import checks
    >>> no_graph = page(checks()[0])
    >>> "backward()" in no_graph.example and no_graph.do.startswith("Fix the line")
    True
    """
    text, _, example = (inspect.getdoc(check.function) or "").partition("```python\n")
    parts: dict[str, list[str]] = {"meaning": []}
    current = "meaning"
    for paragraph in filter(None, (part.strip() for part in text.split("\n\n"))):
        for key, title in SECTIONS.items():
            if paragraph.startswith(f"{title}:"):
                current, paragraph = key, paragraph.removeprefix(f"{title}:").strip()
        parts.setdefault(current, []).append(paragraph)
    return Page(
        check,
        example=example.partition("```")[0],
        **{key: "\n\n".join(parts.get(key, [])) for key in ("meaning", *SECTIONS)},
    )


_INDENT = "  "


def page_lines(page: Page) -> Iterator[str]:
    """The page line by line, at most `WIDTH` wide but for the code."""
    check = page.check
    yield f"{check.id}: {check.severity}{', with --values' if check.needs_values else ''}"
    yield from textwrap.wrap(check.summary, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    yield from _section("What it means", page.meaning)
    yield from ("", "Example", "")
    yield from (f"{_INDENT}{line}".rstrip() for line in page.example.rstrip().splitlines())
    for key, title in SECTIONS.items():
        yield from _section(title, getattr(page, key))


def _section(title: str, text: str) -> Iterator[str]:
    yield from ("", title)
    for i, paragraph in enumerate(text.split("\n\n")):
        if i:
            yield ""
        yield from textwrap.wrap(
            paragraph, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
        )


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Findings) -> dict[str, Any]:
    """The log of one run, with every check that ran as a rule. Files below the current folder are named relative to it."""
    ran = [check for check in checks() if check.id in findings.checked]
    index = {check.id: i for i, check in enumerate(ran)}
    invocation: dict[str, Any] = {"executionSuccessful": not findings.failed}
    if findings.failed:
        message = {"text": f"The script failed: {one_line(findings.failed)}"}
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": message}]
    run = {
        "tool": {"driver": {"name": "gradviz", "version": __version__, "rules": [_rule(check) for check in ran]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_result(finding, index) for finding in findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(check: Check) -> dict[str, Any]:
    text = page(check)
    parts = [("What it means", text.meaning), *((title, getattr(text, key)) for key, title in SECTIONS.items())]
    example = f"**Example**\n\n```python\n{text.example}```"
    return {
        "id": check.id,
        "shortDescription": {"text": check.summary},
        "fullDescription": {"text": text.meaning.split("\n\n")[0].replace("\n", " ")},
        "help": {
            "text": "\n\n".join(f"{title}: {words}" for title, words in parts),
            "markdown": "\n\n".join([*(f"**{title}**\n\n{words}" for title, words in parts), example]),
        },
        "defaultConfiguration": {"level": check.severity},
    }


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    parts = [
        finding.summary,
        finding.why,
        *(f"Effect: {consequence.summary}" for consequence in finding.consequences),
        finding.fix,
    ]
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index[finding.id],
        "level": finding.severity,
        "message": {"text": one_line(". ".join(part.rstrip(".") for part in parts if part)) + "."},
        "partialFingerprints": {"gradviz/v1": _fingerprint(finding)},
        "properties": {"names": list(map(one_line, finding.names)), "call": finding.call, "rank": finding.rank},
    }
    location = _location(finding.code)
    if location is not None:
        result["locations"] = [location]
    others = (consequence for consequence in finding.consequences if consequence.code != finding.code)
    related = list(filter(None, (_location(other.code, other.summary) for other in others)))
    if related:
        result["relatedLocations"] = related
    return result


def _location(code: Excerpt | None, message: str = "") -> dict[str, Any] | None:
    """A region of a file, None where there is no file, as for code of a notebook."""
    if code is None or code.file.startswith("<"):
        return None
    region = {
        "startLine": code.line,
        "startColumn": code.column,
        "endColumn": code.end_column,
        "snippet": {"text": code.text},
    }
    notebook, _ = notebook_of(code.file)
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(notebook or code.file)}}
    place: dict[str, Any] = {"physicalLocation": physical if notebook else physical | {"region": region}}
    if notebook:  # whose lines are not those of the file
        place["logicalLocations"] = [{"name": place_text(code.file, code.line)}]
    return place | ({"message": {"text": one_line(message)}} if message else {})


def _uri(file: str) -> str:
    """Relative to the current folder where the file is below it, so that CI finds it in the repository; else absolute."""
    path = Path(os.path.abspath(file))
    try:
        return quote(path.relative_to(os.getcwd()).as_posix())
    except ValueError:
        return path.as_uri()


def _fingerprint(finding: Finding) -> str:
    """Stays the same when lines above it come or go."""
    where = finding.code.text.strip() if finding.code is not None else finding.where
    parts = (finding.id, *finding.names, where)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]
