"""What a process does in the command that runs: it shows what it read, unless several processes report together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from gradviz.features import hook
from gradviz.rank import rank

if TYPE_CHECKING:
    from gradviz.checks.finding import Findings
    from gradviz.graph import Graph
    from gradviz.run.ending import RunResult
    from gradviz.run.outputs import LiveOutputs
    from gradviz.run.program import Target

Read = Callable[["LiveOutputs"], "Graph"]


def role() -> Role:
    """What this process does in the command that runs."""
    context = click.get_current_context(silent=True)
    given: Role | None = context.obj if context is not None else None
    return given if given is not None else Role()


class Role:
    """It shows what it read, be it the only one or one of several. The roles of `gradviz.ranks` do some of this in another way."""

    def file(self, path: str, asked: bool) -> str:
        """The name that a file gets: of several processes each has one of its own. `asked` where the user chose it."""
        place = rank()
        if place is None:
            return path
        own = place.file(path)
        if asked:
            click.echo(f"This is {place}, so it writes {own} and not {path}.", err=True)
        return own

    def runs_on(self, keep_going: bool, calls: int | None) -> bool:
        """Whether the script runs on after so many backward calls, at which it is read. 0: it is read when it has ended, anyway.

        None: nobody else waits for it. `keep_going` is what the user wants.
        """
        return keep_going

    def process(self, graph: Graph, live: LiveOutputs) -> Graph:
        """A graph that was read, with the process that read it where it is one of several."""
        place = rank()
        with_process = hook("gradviz.ranks.reading:with_process") if place is not None else None
        return graph if with_process is None else with_process(graph, live, place)

    def reads(self, read: Read, whole_step: bool) -> Read:
        """How graphs are read where `read` would do for one process. `whole_step`: all microbatches of a step."""
        return read if rank() is None else lambda live: self.process(read(live), live)

    def seen(self, graph: Graph) -> None:
        """Called with each graph of a check before the script goes on."""

    def left_graph(self, target: Target) -> RunResult[Graph] | None:
        """The graph to show in place of one that is read here."""
        return None

    def left_findings(self, target: Target, only: Sequence[str], ignore: Sequence[str]) -> RunResult[Findings] | None:
        """The findings to show, of these checks, in place of what is found here."""
        return None

    def leave_graph(self, captured: RunResult[Graph]) -> None:
        """Called with the graph that was read here, before it is shown."""

    def leave_findings(self, captured: RunResult[Findings]) -> None:
        """The same with what was found."""
