"""What a health check says: one finding, and the findings of one run. Plain data;
printing is elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from gradviz.checks.excerpt import Excerpt
from gradviz.checks.words import Names
from gradviz.graph import Graph, Mark
from gradviz.report.results import displayed
from gradviz.wording import clip, plural

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""From the worst down. An error makes backward fail or trains nothing; a warning is
mostly a mistake; a note is good to know.
"""

_SHOWN = 2  # of the findings in one line

KEYS = ("id", "severity", "summary", "names", "where", "why", "fix")
"""What JSON has of a finding, before the place in the code, the backward call and the
consequences.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or worth knowing.

    `names` are those of the tensors, parameters or modules concerned; `where` is module
    and `file:line`, "" when unknown; `why` is the context; `fix` what to do. `nodes`
    are what a picture marks. `code` is the line of the user's to look at first.
    `consequences` are findings that this one explains: they go when it is mended.
    """

    id: str
    severity: Severity
    summary: str
    names: Names
    where: str
    why: str
    fix: str
    nodes: tuple[int, ...] = ()
    call: int | None = None  # the backward call that the node ids belong to
    code: Excerpt | None = None
    # ids of checks: what they find explains this one, or does so of the same names or more
    follows: Names = ()
    repeats: Names = ()
    # the process that found it, where a launcher started several
    rank: int | None = None
    consequences: tuple[Finding, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """For JSON. What is unknown is None."""
        data = {key: getattr(self, key) for key in KEYS}
        data["names"] = list(self.names)
        for key in Excerpt._fields:
            data["code" if key == "text" else key] = getattr(self.code, key, None)
        data |= {"call": self.call, "rank": self.rank}
        data["consequences"] = [
            {"id": each.id, "severity": each.severity, "summary": each.summary}
            for each in self.consequences
        ]
        return data


@displayed("gradviz.checks.output:FindingsTable")
@dataclass(frozen=True)
class Findings(Sequence[Finding]):
    """The findings of one run, the worst first, and what was checked. A sequence of
    `Finding`; `print` shows a report.
    """

    found: tuple[Finding, ...]
    checked: Names  # ids of the checks that ran
    graphs: tuple[Graph, ...] = ()  # what they looked at, in order
    calls: tuple[int | None, ...] = ()  # the backward call of each graph
    skipped: tuple[tuple[str, str], ...] = ()  # id and reason
    notes: Names = ()
    failed: str = ""  # the exception that ended the script, "" when none did

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        """What `assert not findings` says. pytest shows 240 characters."""
        words = [f"{clip(each.summary, 80)} [{each.id}]" for each in self[:_SHOWN]]
        parts = f"{self.totals or 'none'}: {'; '.join(words)}".rstrip(": ")
        return f"<Findings: {parts}>"

    @property
    def totals(self) -> str:
        """`1 error, 2 notes`, "" when nothing was found."""
        counts = Counter(finding.severity for finding in self)
        present = [severity for severity in SEVERITIES if counts[severity]]
        return ", ".join(plural(counts[severity], severity) for severity in present)

    @property
    def graph(self) -> Graph:
        """What to draw: the graph that the worst finding is about, with all its
        findings marked and numbered.
        """
        if not self.graphs:
            return Graph()
        worst = self.found[0].call if self.found else self.calls[0]
        numbered = enumerate(self.found, 1)
        marks = tuple(_mark(number, finding, worst) for number, finding in numbered)
        return replace(self.graphs[self.calls.index(worst)], marks=marks)

    def as_data(self) -> dict[str, Any]:
        """For JSON: `{"findings": [...]}`."""
        return {"findings": [finding.as_data() for finding in self.found]}

    def reach(self, severity: Severity) -> bool:
        """Whether one of them is as bad as this, or worse."""
        bad = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return any(finding.severity in bad for finding in self.found)


def _mark(number: int, finding: Finding, call: int | None) -> Mark:
    """A finding in the picture of the graph at one backward call."""
    words = [f"{finding.severity}: {finding.summary}", finding.where]
    is_other = finding.call != call
    if is_other:
        words.append(f"at backward call {finding.call}")
    text = f"{', '.join(filter(None, words))}  [{finding.id}]"
    if is_other:
        return Mark(number, finding.id, text)
    outputs = finding.names if finding.id == "no-graph" else ()
    return Mark(number, finding.id, text, finding.nodes, outputs=outputs)
