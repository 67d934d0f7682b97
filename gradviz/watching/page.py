"""The page of a watched run: curves over steps, the looks, and the graph page of each look that differs, in one file.

What all graph pages have in common, their style and script, is in the file once. Knows no tensor.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from gradviz.draw.options import Options
from gradviz.errors import GradvizError
from gradviz.page.html import policy, render_findings, script, style
from gradviz.report.results import json_ready
from gradviz.watching.history import History, StepNumbers
from gradviz.watching.look import StepLook
from gradviz.wording import bytes_text, one_line, plural

KEPT = 8
"""Graphs that the page holds: that of step 1, and the last ones that differ from the one before."""
LARGEST = 100_000
"""Nodes of a graph that the page holds."""
_STYLE, _SCRIPT = "\x02", "\x03"  # stand for those of the graph page; no text of a page has control characters


class RunPage:
    """Of one run, with the packed graph pages. `ended` says how the run ended, "" while it runs; `steps` is how many there were."""

    def __init__(self, name: str) -> None:
        self.name, self.ended, self.steps = name, "", 0
        self._graphs: dict[int, str] = {}  # by step
        self._at: dict[int, int] = {}  # by step of a look: the step whose graph it opens
        # what pages show, and of which step
        self._shown: dict[tuple[int, frozenset[tuple[str, tuple[str, ...]]]], int] = {}

    def add(self, look: StepLook) -> None:
        """Keep the graph of a look, unless a page shows the same nodes and findings."""
        shown = look.structure, frozenset((finding.id, finding.names) for finding in look.findings)
        if shown not in self._shown:
            if look.nodes > LARGEST:
                raise GradvizError(
                    f"the graph of step {look.step} has {plural(look.nodes, 'node')} and is not in the page"
                )
            self._shown[shown] = look.step
            self._graphs[look.step] = _packed(_graph_page(look))
            if len(self._graphs) > KEPT:
                del self._graphs[[*self._graphs][1]]
        self._at[look.step] = self._shown[shown]

    def pieces(self, history: History, looks: Sequence[StepLook], notes: Sequence[str]) -> Iterator[str]:
        """The pieces of the file."""
        own_style, own_script = _asset("watch.css"), _asset("watch.js")
        data = {
            "ended": self.ended,
            "count": self.steps,
            "notes": list(map(one_line, notes)),
            "modules": list(map(one_line, history.modules)),
            "steps": list(map(_step, history.steps)),
            "before": list(map(_step, history.before)),
            "broken": history.breaks(),
            "looks": [self._look(look) for look in looks],
        }
        words = {
            "policy": policy([own_script, script()], [own_style, style()]),
            "title": html.escape(one_line(self.name)),
            "style": own_style,
            "data": _packed(json.dumps(json_ready(data))),
            "viewer": _packed(json.dumps([style(), script()])),
            "graphs": json.dumps({str(step): packed for step, packed in self._graphs.items()}),
            "script": own_script,
        }
        for i, piece in enumerate(_asset("watch.html").split("\x7b\x7b")):
            slot, end, rest = piece.partition("}}")
            yield f"{words[slot]}{rest}" if i and end else piece

    def _look(self, look: StepLook) -> dict[str, Any]:
        at = self._at.get(look.step)
        return {
            "step": look.step,
            "nodes": look.nodes,
            "bytes": look.nbytes,
            "saved": bytes_text(look.nbytes),
            "changes": look.changes,
            "graph": at if at in self._graphs else None,
            "findings": [
                [one_line(word) for word in (one.severity, one.summary, one.where, one.why, one.fix, one.id)]
                for one in look.findings
            ],
        }


def _graph_page(look: StepLook) -> str:
    text = "".join(render_findings(look.findings, Options()))
    return text.replace(style(), _STYLE).replace(script(), _SCRIPT)


def _step(step: StepNumbers) -> list[Any]:
    numbers = (step.loss, step.norm, *step.norms)
    return [step.step, step.optimizer, step.calls, int(step.skipped), *map(_number, numbers)]


def _number(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"))).decode("ascii")


def _asset(name: str) -> str:
    return resources.files("gradviz.watching").joinpath("web", name).read_text(encoding="utf-8")
