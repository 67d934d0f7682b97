"""What a run hands over while the user's tensors are alive, and what is left of it afterwards.

Knows nothing of how the user's code is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gradviz.graph import Graph
from gradviz.run.failure import Failure
from gradviz.run.target_name import Target
from gradviz.variables.scanner import Namespace

if TYPE_CHECKING:
    from gradviz.recording.record import Recording
    from gradviz.walker.description import Attribution

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LiveOutputs:
    """The outputs that were looked for, while they are alive. Keep nothing of it: the script's tensors must die with the script.

    `variables` are the namespaces that know names, innermost first. `names` are names for the outputs where no variable
    holds them all. `recording` knows module calls and source lines; it is None when nothing was recorded. `notes` is what a
    reader of the graph must know about how it was found.
    `frame` is the one that torch called the engine from at backward call `call`; both are None when the script has ended.
    `create_graph` is that of the call; `ran` is whether the engine has run already.
    """

    outputs: Any
    variables: Sequence[Namespace]
    title: str
    recording: Recording | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    frame: FrameType | None = None
    call: int | None = None
    create_graph: bool = False
    ran: bool = False

    @property
    def attribution(self) -> Attribution | None:
        """Which module call and line made each node, where that was recorded."""
        return self.recording.attribution(None, self.variables) if self.recording is not None else None


@dataclass(frozen=True, slots=True)
class Captured(Generic[T]):
    """What `read` returned, and how the script failed afterwards, if it did."""

    result: T
    target: Target
    failure: Failure | None = None
    later: tuple[T, ...] = ()  # what was read at further calls of backward, when more than one was asked for
    unread: str = ""  # why a further call could not be read
    calls: int = 0  # backward calls that were seen
    timed_out: bool = False  # whether the script was ended because there was no time left

    def raise_failure(self) -> None:
        """Show the user's own traceback and raise ScriptError, when the script failed. Write the result before."""
        if self.failure is not None:
            self.failure.raise_error(self.target)


def read_graph(live: LiveOutputs) -> Graph:
    """The graph behind the outputs: what `run_target` reads when it is not told otherwise."""
    from gradviz.walker.walk import capture

    graph = capture(live.outputs, variables=live.variables, title=live.title, attribution=live.attribution)
    if live.notes:
        graph = replace(graph, notes=(*live.notes, *graph.notes))
    return graph.with_root_names(live.names)
