"""How findings and checks are written: a report and pages for the terminal, and a SARIF
log for editors and CI.

A check's docstring is its page: the documentation, `gradviz check --explain` and the
rules of a SARIF log are made from it. SARIF 2.1.0:
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.cells import cell_len, set_cell_size

from gradviz import __version__
from gradviz.checks.finding import Finding, Findings, Severity
from gradviz.checks.registry import Check, checks
from gradviz.checks.words import CODE, Excerpt, short_path
from gradviz.report import labels
from gradviz.report.rich_parts import Console, ConsoleOptions, RenderResult, Text
from gradviz.run.cells import place_in_file
from gradviz.wording import clip, notebook_of, one_line, place_text, plural

WIDTH = 80
INDENT = 11
SHOWN = 3
"""Names that a finding lists before it counts the others, unless all are asked for."""
COLORS: dict[Severity, str] = {
    "error": "red",
    "warning": "yellow",
    "note": "cyan",
}


class FindingsTable:
    """The report for rich, as wide as the terminal, at most `WIDTH`. `verbose`: with
    all names, and the checks that ran.
    """

    def __init__(self, findings: Findings, verbose: bool = False) -> None:
        self._found, self._verbose = findings, verbose

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        for line, style in report(
            self._found, min(WIDTH, options.max_width), self._verbose
        ):
            yield Text(
                line,
                f"bold {COLORS[style]}" if style in COLORS else style,
                overflow="fold",
            )


FIRST, FURTHER = 20, 6
"""Lines of the first finding, and of each further one, unless all is asked for."""
_LEAST = {
    "names": 0,
    "when": 0,
    "effect": 0,
    "why": 0,
    "code": 1,
    "fix": 2,
}
"""What is shortened first where a finding is too long, and how many lines of it stay.
"""
_Rows = dict[str, list[str]]


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

    for i, finding in enumerate(shown):
        if i:
            yield "", ""
        head = _wrapped(f"{i + 1}. {_heading(finding)}", width - 3)
        yield from (
            (f"{'   ' * bool(j)}{line}", finding.severity)
            for j, line in enumerate(head)
        )
        rows = _rows(finding, width, verbose)
        if not verbose:
            shortened |= _shorten(rows, (FURTHER if i else FIRST) - len(head))
        yield from ((line, "") for lines in rows.values() for line in lines)

    if len(findings):
        yield "", ""

    checked = _checked(findings, verbose) + (
        " Shortened: --verbose shows all." if shortened else ""
    )
    yield from zip(_wrapped(checked, width), repeat("dim"))
    nothing = (
        f"The script failed, and no check explains it: {one_line(findings.failed)}"
    )
    total = findings.totals or (nothing if findings.failed else "Nothing found.")
    yield from zip(_wrapped(total, width), repeat("bold"))


def _shorten(rows: _Rows, most: int) -> bool:
    """Whether something of the rows had to go."""
    over = sum(map(len, rows.values())) - most
    shortened = over > 0
    for word, least in _LEAST.items():
        lines = rows.get(word, [])
        left = max(least, len(lines) - max(0, over))
        if left < len(lines):
            over -= len(lines) - left
            del lines[left:]
            if lines and word != "code":
                lines[-1] = f"{lines[-1][: WIDTH - 2]} …"
    return shortened


def _rows(finding: Finding, width: int, verbose: bool) -> _Rows:
    """All of a finding but its head, part by part."""
    names, code = finding.names, finding.code
    told = len(names) == 1 and names[0] in finding.summary
    if len(names) > SHOWN and not verbose:
        more = f", {labels.more(len(names) - SHOWN)}"
    else:
        more = ""
    listed = ", ".join(names if verbose else names[:SHOWN]) + more

    def row(word: str, *texts: str) -> list[str]:
        return [
            line
            for text in texts
            if text
            for line in _row(word, _wrapped(one_line(text), width - INDENT))
        ]

    # the rest is of the whole run
    late = (finding.call or 0) > 1 and (finding.nodes or finding.severity == "error")
    return {
        "names": row("names", "" if told else listed),
        "where": row("where", finding.where),
        "code": [f"{'':{INDENT}}{line}" for line in code_lines(code, width - INDENT)]
        if code is not None
        else [],
        "when": row("when", f"backward call {finding.call}" if late else ""),
        "why": row("why", _shorter(finding.why, code)),
        "effect": row("effect", *consequences(finding)),
        "fix": row("fix", _shorter(finding.fix, code)),
    }


def _row(
    word: str,
    lines: Iterable[str],
) -> list[str]:
    return [
        f"{'' if i else f'   {word}:':<{INDENT}}{line}" for i, line in enumerate(lines)
    ]


def _heading(finding: Finding, at: str = "") -> str:
    """How bad it is, on which rank, what it is, where, and the check that says so."""
    where = f" on rank {finding.rank}" if finding.rank is not None else ""
    return f"{finding.severity}{where}: {one_line(finding.summary)} {at} [{finding.id}]"


def consequences(finding: Finding) -> Iterator[str]:
    """One line for the findings of each check that follow from this one."""
    groups: dict[str, list[Finding]] = {}
    for consequence in finding.consequences:
        groups.setdefault(consequence.id, []).append(consequence)
    for id, members in groups.items():
        first = members[0]
        if first.code is not None and first.code != finding.code:
            at = f", {first.where}"
        else:
            at = ""
        more = f", {labels.more(len(members) - 1)}" if len(members) > 1 else ""
        yield f"{_shorter(first.summary + at, finding.code)}{more}  [{id}]"


def short_lines(findings: Findings) -> Iterator[str]:
    """A line for each finding, as compilers write them, for editors:
    `train.py:12:9: warning: ... [unused-parameter]`.
    """
    for finding in findings:
        code = finding.code
        if code is None:
            place = at = ""
        else:
            at = place_text(one_line(short_path(code.file)), code.line)
            notebook, region = notebook_of(code.file)[0], _region(code)
            if notebook and region is not None:
                place = f"{one_line(short_path(notebook))}:{region[0]}:{region[1][0]}: "
                at = f"({at})"
            else:
                place, at = f"{at}:{code.column}: ", ""

        yield place + " ".join(_heading(finding, at).split())


def _region(
    code: Excerpt,
) -> tuple[int, tuple[int, int]] | None:
    """The line, and the first column and the one behind the last, in the file; None
    where that is not known.
    """
    notebook, columns = notebook_of(code.file)[0], (code.column, code.end_column)
    if notebook:
        return place_in_file(notebook, columns, code.text)
    return (code.line, columns)


def _shorter(text: str, code: Excerpt | None) -> str:
    """The same without the code of the line that is shown above it, and with `line 12`
    for lines of the file that `where` names.
    """
    if code is None:
        return text
    line, file = str(code.line), one_line(short_path(code.file))
    shown = f"{line} (`{clip(code.text.strip(), CODE)}`)"
    before = re.escape(place_text(file, code.line).removesuffix(line))
    return re.sub(rf"(?<![\w/.]){before}(?=\d)", "line ", text.replace(shown, line))


def code_lines(code: Excerpt, width: int) -> Iterator[str]:
    """The line as compilers show it: its number, its code without the indentation, and
    carets under what matters.

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

    # what matters, and what is before it as far as it fits
    if cell_len(before + part + after) > room:
        after = ""
        part = part if cell_len(part) < room else f"{set_cell_size(part, room - 2)}…"
        left = room - cell_len(part) - 1
        if cell_len(before) <= left:
            before = before
        else:
            before = f"…{set_cell_size(before[::-1], max(0, left - 1))[::-1]}"

    yield f"{number} | {before}{part}{after}".rstrip()
    yield f"{'':{len(number)}} | {'':{cell_len(before)}}{'^' * cell_len(part)}"


class _Wrapper(textwrap.TextWrapper):
    """Breaks a name that is longer than a line behind a dot, an underscore or a slash."""

    def _split(self, text: str) -> list[str]:
        chunks: list[str] = super()._split(text)
        long = (
            _NAME_PARTS.findall(chunk) if len(chunk) > self.width else [chunk]
            for chunk in chunks
        )
        return [part for parts in long for part in parts]


_NAME_PARTS = re.compile(r"[^._/]+[._/]*|[._/]+")


def _wrapped(line: str, width: int) -> list[str]:
    return _Wrapper(
        max(20, width),
        break_on_hyphens=False,
    ).wrap(line) or [""]


def _checked(findings: Findings, verbose: bool) -> str:
    graphs = [graph for graph in findings.graphs if graph.nodes]
    nodes = sum(len(graph.nodes) for graph in graphs)
    if graphs:
        what = f"{plural(len(graphs), 'graph')} of {plural(nodes, 'node')}"
    else:
        what = "no graph"

    every = f": {', '.join(findings.checked)}" if verbose else ""
    line = f"Ran {plural(len(findings.checked), 'check')} on {what}{every}."
    reasons: dict[str, list[str]] = {}
    for id, reason in findings.skipped:
        reasons.setdefault(reason, []).append(id)

    for reason, ids in reasons.items():
        named = verbose or len(ids) == 1
        which = ", ".join(ids) if named else plural(len(ids), "check")
        line += f" {which} skipped: {reason}."

    return line + "".join(f" {note}" for note in findings.notes)


def catalogue(every: tuple[Check, ...]) -> Iterator[str]:
    """What each check says that there is, with its id and severity."""
    indent = max(len(check.id) for check in every) + 11
    for check in every:
        values = " (with --values)" if check.needs_values else ""
        for i, line in enumerate(_wrapped(check.summary + values, WIDTH - indent)):
            yield f"{'' if i else f'{check.id:<{indent - 9}}{check.severity}':<{indent}}{line}"


MEANING, EXAMPLE = "What it means", "Example"
SECTIONS = ("How it is found", "What to do", "When to ignore it")
"""How the paragraphs of a docstring begin that are sections of their own."""


def page(check: Check) -> dict[str, str]:
    """What the docstring of a check says, by title: paragraphs with a blank line
    between, and a script that has the fault.

    >>> from gradviz.checks.registry import checks
    >>> no_graph = page(checks()[0])
    >>> "backward()" in no_graph["Example"] and no_graph["What to do"].startswith("Fix the line")
    True
    """
    text, _, example = (inspect.getdoc(check.function) or "").partition("```python\n")
    meaning, *rest = re.split(rf"^({'|'.join(SECTIONS)}): *", text, flags=re.MULTILINE)
    sections = dict(
        zip(
            rest[::2],
            map(str.strip, rest[1::2]),
        )
    )

    return {
        MEANING: meaning.strip(),
        EXAMPLE: example.partition("```")[0],
        **sections,
    }


_INDENT = "  "


def page_lines(check: Check) -> Iterator[str]:
    """The page line by line, at most `WIDTH` wide but for the code."""
    yield f"{check.id}: {check.severity}{', with --values' if check.needs_values else ''}"
    yield from _indented(check.summary)

    for title, text in page(check).items():
        yield from ("", title)
        if title == EXAMPLE:
            yield from (
                "",
                *(f"{_INDENT}{line}".rstrip() for line in text.rstrip().splitlines()),
            )
            continue
        for i, paragraph in enumerate(text.split("\n\n")):
            yield from ([""] if i else [])
            yield from _indented(paragraph)


def _indented(paragraph: str) -> list[str]:
    return textwrap.wrap(
        paragraph,
        WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Findings) -> dict[str, Any]:
    """The log of one run, with every check that ran as a rule. Files below the current
    folder are named relative to it.
    """
    ran = [check for check in checks() if check.id in findings.checked]
    index = {check.id: i for i, check in enumerate(ran)}
    invocation: dict[str, Any] = {"executionSuccessful": not findings.failed}

    if findings.failed:
        message = {"text": f"The script failed: {one_line(findings.failed)}"}
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": message}
        ]

    run = {
        "tool": {
            "driver": {
                "name": "gradviz",
                "version": __version__,
                "rules": [_rule(check) for check in ran],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_result(finding, index) for finding in findings],
    }

    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(check: Check) -> dict[str, Any]:
    parts = page(check)
    example = f"**{EXAMPLE}**\n\n```python\n{parts.pop(EXAMPLE)}```"
    return {
        "id": check.id,
        "shortDescription": {"text": check.summary},
        "fullDescription": {"text": parts[MEANING].split("\n\n")[0].replace("\n", " ")},
        "help": {
            "text": "\n\n".join(f"{title}: {words}" for title, words in parts.items()),
            "markdown": "\n\n".join(
                [
                    *(f"**{title}**\n\n{words}" for title, words in parts.items()),
                    example,
                ]
            ),
        },
        "defaultConfiguration": {"level": check.severity},
    }


def _result(
    finding: Finding,
    index: dict[str, int],
) -> dict[str, Any]:
    effects = (f"Effect: {consequence.summary}" for consequence in finding.consequences)
    parts = filter(
        None,
        (finding.summary, finding.why, *effects, finding.fix),
    )
    others = (
        _location(other.code, other.summary)
        for other in finding.consequences
        if other.code != finding.code
    )
    locations = {
        "locations": [_location(finding.code)],
        "relatedLocations": list(others),
    }

    return {
        "ruleId": finding.id,
        "ruleIndex": index[finding.id],
        "level": finding.severity,
        "message": {
            "text": one_line(". ".join(part.rstrip(".") for part in parts)) + "."
        },
        "partialFingerprints": {"gradviz/v1": _fingerprint(finding)},
        "properties": {
            "names": list(map(one_line, finding.names)),
            "call": finding.call,
            "rank": finding.rank,
        },
        **{
            key: known
            for key, places in locations.items()
            if (known := list(filter(None, places)))
        },
    }


def _location(
    code: Excerpt | None,
    message: str = "",
) -> dict[str, Any] | None:
    """A region of a file, None where there is no file, as for code of a notebook."""
    if code is None or code.file.startswith("<"):
        return None

    notebook, _ = notebook_of(code.file)
    physical: dict[str, Any] = {
        "artifactLocation": {"uri": _uri(notebook or code.file)}
    }
    region = _region(code)

    if region is not None:
        line, (begin, end) = region
        snippet = {"text": code.text}
        physical["region"] = {
            "startLine": line,
            "startColumn": begin,
            "endColumn": end,
            "snippet": snippet,
        }

    place: dict[str, Any] = {"physicalLocation": physical}
    if notebook:  # whose lines people know by their cell
        place["logicalLocations"] = [{"name": place_text(code.file, code.line)}]

    return place | ({"message": {"text": one_line(message)}} if message else {})


def _uri(file: str) -> str:
    """Relative to the current folder where the file is below it, so that CI finds it in
    the repository; else absolute.
    """
    path = Path(os.path.abspath(file))
    try:
        return quote(path.relative_to(os.getcwd()).as_posix())
    except ValueError:
        return path.as_uri()


def _fingerprint(finding: Finding) -> str:
    """Stays the same when lines above it come or go."""
    where = finding.code.text.strip() if finding.code is not None else finding.where
    parts = (finding.id, *finding.names, where)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[
        :32
    ]
