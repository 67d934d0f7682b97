"""Findings as Markdown, to paste into an issue or an assistant: complete, and literal
in what the user's program says.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradviz.checks.excerpt import code_lines
from gradviz.checks.finding import Finding, Findings
from gradviz.checks.output import consequences
from gradviz.report.markdown import block, span
from gradviz.wording import few, plural

_WIDTH = 120
_NAMES = 8


def markdown(findings: Findings) -> str:
    """All findings, the worst first."""
    lines = [
        f"**gradviz check**: {findings.totals or 'nothing found'}, {plural(len(findings.checked), 'check')}"
    ]
    lines += (
        [f"\nThe script failed: {span(findings.failed)}"] if findings.failed else []
    )

    for number, finding in enumerate(findings, 1):
        lines += [
            "",
            f"### {number}. {finding.severity}: {finding.id}",
            "",
            *_finding(finding),
        ]

    return "\n".join(lines) + "\n"


def _finding(finding: Finding) -> Iterator[str]:
    yield span(finding.summary)
    if finding.code is not None:
        yield from ("", block(code_lines(finding.code, _WIDTH)))

    yield ""
    rows = {
        "names": few(finding.names, _NAMES) if len(finding.names) > 1 else "",
        "where": finding.where,
        "why": finding.why,
        "effect": "; ".join(consequences(finding)),
        "fix": finding.fix,
    }
    yield from (f"- {word}: {span(text)}" for word, text in rows.items() if text)
