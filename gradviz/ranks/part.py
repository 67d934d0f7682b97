"""What the context of a command carries where several ranks run it: this rank's part, or what to show for all.

Knows no process and no waiting: see `taking_part`.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gradviz.ranks.meeting import Meeting
from gradviz.ranks.outcome import Outcome
from gradviz.ranks.stopping import may_stop
from gradviz.run.engine import microbatch_of
from gradviz.run.program import Target

if TYPE_CHECKING:
    from gradviz.checks.finding import Findings
    from gradviz.graph import Graph
    from gradviz.ranks.rank_diff import RankDiff
    from gradviz.run.ending import Captured
    from gradviz.run.outputs import LiveOutputs

MERGED = {"render": "graph", "tree": "graph", "check": "findings"}
"""Commands that show one graph, or one list of findings, for all ranks; by what the ranks must have left."""


GRAPH = "graph.json"
"""What the file with a rank's graph is called in the meeting's folder."""


class HandedIn(BaseException):
    """Ends a command in one rank: what it would show is shown for all ranks together."""


@dataclass(slots=True)
class Part:
    """This rank's part in a command. `files` are what it has left, by what they are."""

    meeting: Meeting
    command: str
    files: dict[str, str] = field(default_factory=dict)
    left: int = 0  # backward calls to come that this rank reads; 0 when it does not stop at one
    unread: int | None = None  # microbatches of the step that this rank still reads
    stops: bool = False
    ready: bool = False  # it has read them
    whole: bool = False  # the script runs to its end

    def stops_after(self, calls: int) -> None:
        """Let the script go on after what is read, and stop it when every rank has read as many backward calls.

        A rank that stopped at once would never send the gradient that another one waits for, as in a pipeline.
        """
        self.left, self.stops = calls, True

    def gate(self, fills: bool) -> None:
        """Called before each call of backward or `torch.distributed`. Raises Stopped when the script need not go on."""
        if self.left and fills:
            self.left -= 1
        if self.stops and not self.ready and not (self.left if self.unread is None else self.unread):
            self.meeting.write("ready", {"at": time.monotonic()})
            self.ready = True
        if self.ready and may_stop(self.meeting):
            from gradviz.run.ending import Stopped

            self.whole = False
            raise Stopped

    def leaving(self, read: Callable[[LiveOutputs], Graph], whole_step: bool, live: LiveOutputs) -> Graph:
        """What `read` gives, left for the others before the script goes on. Of a step's microbatches, the first one is."""
        graph = read(live)
        if self.unread is None:
            self.files.pop("graph", None)  # a later call may take the place of an earlier one
            self.seen(graph)
        microbatch = microbatch_of(live.frame) if whole_step else None
        if microbatch is not None:
            self.unread = microbatch.count - microbatch.number - 1
        return graph

    def seen(self, graph: Graph) -> None:
        """Leave a graph for the others, at once: this rank may hang or die in what comes next. The first one counts."""
        from gradviz.draw.output import save

        if "graph" not in self.files:
            self.files["graph"] = save(graph, self.meeting.path(GRAPH))

    def graph(self, captured: Captured[Graph]) -> None:
        """The graph of this rank is complete. Raises HandedIn when there is nothing more to do in it."""
        self.files.pop("graph", None)
        self.seen(captured.result)
        self._end(captured)

    def findings(self, captured: Captured[Findings]) -> None:
        """Leave what `check` found. Raises HandedIn."""
        findings = captured.result
        self.files["findings"] = self.meeting.path("findings")
        with open(self.files["findings"], "wb") as file:
            pickle.dump((replace(findings, graphs=()), [len(graph.nodes) for graph in findings.graphs]), file)
        self._end(captured)

    def _end(self, captured: Captured[Graph] | Captured[Findings]) -> None:
        if self.command in MERGED:
            captured.raise_failure()
            raise HandedIn


@dataclass(frozen=True, slots=True)
class Given:
    """What a command is to show in place of what a script would give it."""

    diff: RankDiff | None
    outcomes: tuple[Outcome, ...] = ()

    def file(self, path: str) -> str:
        """The name that a file gets. That of one machine among several has its ranks: machines may share a disk."""
        if self.outcomes and self.outcomes[0].world > len(self.outcomes):
            stem, suffix = os.path.splitext(path)
            ranks = [outcome.rank for outcome in self.outcomes]
            return f"{stem}.ranks{min(ranks)}-{max(ranks)}{suffix}"
        return path

    def captured(self, target: Target) -> Captured[Graph]:
        """The merged graph."""
        from gradviz.graph import Graph
        from gradviz.run.ending import Captured

        return Captured(self.diff.graph if self.diff is not None else Graph(), target)

    def checked(self, target: Target, only: Sequence[str], ignore: Sequence[str]) -> Captured[Findings]:
        """The findings of all ranks."""
        from gradviz.ranks.checking import merged_findings
        from gradviz.run.ending import Captured

        return Captured(merged_findings(self.outcomes, self.diff, only, ignore), target)
