"""The findings of `gradviz check` as a page: numbered marks in the graph, and a list with the reasons that jumps to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradviz.checks.finding import Finding, Findings
from gradviz.checks.text import code_lines
from gradviz.draw.options import Options
from gradviz.draw.output import folded
from gradviz.page.html import compose
from gradviz.page.pack import Pack
from gradviz.report.labels import one_line

_CODE = 60
"""Characters of a line of code in the list."""


def render(found: Findings, options: Options) -> Iterator[str]:
    """The page of the graph that the worst finding is about, folded as in a picture, with all findings."""

    def add(pack: Pack) -> None:
        pack.put("findings", [_row(number, finding) for number, finding in enumerate(found, 1)])
        pack.put("checked", [one_line(name) for name in found.checked])

    return compose(folded(found.graph, options), options, add)


def _row(number: int, finding: Finding) -> list[Any]:
    words = (
        finding.id,
        finding.severity,
        finding.summary,
        ", ".join(finding.names),
        finding.where,
        finding.why,
        finding.fix,
        "; ".join(f"{one.summary} [{one.id}]" for one in finding.consequences),
    )
    code = "\n".join(code_lines(finding.code, _CODE)) if finding.code is not None else ""
    return [number, *map(one_line, words), code]
