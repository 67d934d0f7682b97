"""What a command looks at: a saved graph, or what a run of a script leads to.

Imports torch only when a script is run: a saved graph is read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gradviz.cli.progress import reading
from gradviz.errors import TargetError
from gradviz.run.target import Target

if TYPE_CHECKING:
    from gradviz.graph import Graph
    from gradviz.run.ending import RunResult
    from gradviz.run.outputs import LiveOutputs
    from gradviz.run.selection import CallWatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source:
    """What to look at and how to run it, as the command line has it."""

    target: Target
    arguments: tuple[str, ...]
    at: int | Sequence[int] | None
    keep_going: bool

    def graph(
        self, read: Callable[[LiveOutputs], Graph] | None = None
    ) -> RunResult[Graph]:
        """Load the saved graph, or run the script. Call `raise_failure()` of the result
        when its graph is written.

        `read` reads what a script leads to, where `gradviz.run.reading.read_graph` is not
        to do it.
        """
        if self.target.kind == "graph":
            return self._saved_graph()

        from gradviz.run.reading import read_graph, with_process

        graph_of = read or read_graph
        return self.read(lambda live: with_process(graph_of(live)))

    def _saved_graph(self) -> RunResult[Graph]:
        from gradviz.graph.files import load
        from gradviz.run.ending import RunResult

        for is_set, option in (
            (self.arguments, "arguments after --"),
            (self.at is not None, "--at"),
            (self.keep_going, "--continue"),
        ):
            if is_set:
                raise TargetError(
                    f"{self.target.place!r} is a saved graph, which runs no script: leave out {option}."
                )
        with reading():
            return RunResult(load(self.target.place), self.target)

    def read(
        self,
        read: Callable[[LiveOutputs], T],
        *,
        need_graph: bool = True,
        steps: int | None = None,
        watch: CallWatch | None = None,
    ) -> RunResult[T]:
        """Run the script and `read` what it leads to, while it is alive. Raises
        TargetError for a saved graph.

        The options are those of `Run`.
        """
        from gradviz.run.run import Run

        return Run(
            self.target,
            read,
            self.arguments,
            at=self.at,
            keep_going=self.keep_going,
            need_graph=need_graph,
            around=reading,
            steps=steps,
            watch=watch,
        ).captured()
