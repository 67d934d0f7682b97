"""`record()`: notes module calls and source lines while the user's code runs, for the graphs made meanwhile.

Puts together the session, what it noted, and the walker. Changes no result, no random number and no graph; everything
is undone on exit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

import torch

from gradviz.errors import GradvizError
from gradviz.graph import Graph, SourceLine
from gradviz.packages import with_text
from gradviz.recording import session as sessions
from gradviz.recording.calls import EventLog
from gradviz.recording.recorded import Recorded, Span
from gradviz.recording.session import Session
from gradviz.recording.unfinished import LastOutputs, Unfinished, unfinished
from gradviz.source.frames import callers_variables
from gradviz.variables.scanner import Namespace, namespaces
from gradviz.walker.names import module_paths
from gradviz.walker.private import CAN_RECORD, peek_sequence
from gradviz.walker.walk import capture


class ModuleRun(NamedTuple):
    """What a recording saw of one module. The facts other than `calls` are those of its last call with tensors."""

    calls: int
    recording: bool = True  # whether autograd was recording when it was called
    gave_graph: bool = True  # whether a tensor that it returned requires grad
    source: SourceLine | None = None  # the line that called it
    began: int = 0  # the sequence number that the next node would have got when it was called
    checkpoint: SourceLine | None = (
        None  # the line of the reentrant checkpoint around it of which no input requires grad
    )


def record() -> Recording:
    """Note, for every node made inside the `with`, the module call and the source line that made it.

    Returns:
        A context manager. Its `graph(outputs)` is `gradviz.walk(outputs)` plus what was noted; it works inside the `with`
        and after it. Nothing of the user's is kept alive by it.

    >>> import torch, gradviz
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> with gradviz.record() as recording:
    ...     loss = net(torch.ones(1, 2)).sum()
    >>> graph = recording.graph(loss, model=net)
    >>> [(node.op, graph.scopes[node.scope].type) for node in graph.nodes[1:3]]
    [('ReluBackward0', 'ReLU'), ('AddmmBackward0', 'Linear')]

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.module.register_module_forward_hook.html
    """
    return Recording()


class Recording:
    """What `record()` yields. Used once; keeps no tensor and no module alive."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._starts: dict[EventLog, int] = {}
        self._ends: dict[EventLog, int] | None = None
        self._failure: Unfinished | None = None

    def __enter__(self) -> Recording:
        if self._session is not None:
            raise GradvizError("this recording has been used already: call gradviz.record() for another one")
        if not CAN_RECORD:
            raise GradvizError(f"torch {torch.__version__} does not tell the sequence number of the next node")
        self._session = session = sessions.enter()
        self._starts = {event_log: event_log.end for event_log in session.event_logs}
        self._starts[session.event_log()] = peek_sequence()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._running()
        self._ends = {event_log: event_log.end for event_log in session.event_logs}
        self._ends[session.event_log()] = peek_sequence()
        try:
            if error is not None:
                self._failure = unfinished(session, error)
        finally:
            sessions.leave(session)

    def graph(
        self,
        outputs: object,
        model: torch.nn.Module | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        saved: bool = True,
    ) -> Graph:
        """The graph behind `outputs` with module calls and source lines. Arguments and errors: `gradviz.walk`.

        Module paths begin with the name that `model` or the caller's variables give the outermost module. Calls are
        counted within the graph: `Scope.call` is 2 at the second of the module's calls that led to `outputs`.
        """
        variables = callers_variables(sys._getframe(1))
        attribution = self.attribution(model, variables)
        return capture(outputs, model=model, params=params, variables=variables, saved=saved, attribution=attribution)

    def last_outputs(
        self, error: BaseException | None = None, variables: Sequence[Namespace] | None = None
    ) -> LastOutputs:
        """What a forward had computed when it failed, to be given to `graph`, and where it failed.

        Args:
            error: the exception, when the user's code caught it inside the `with`; else it is the one that ended the `with`.
            variables: namespaces that name the modules; without it the caller's.

        The tensors are held weakly: they are there as long as the exception's traceback, or the user, holds them.

        >>> import torch, gradviz
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(2, 1))
        >>> try:
        ...     with gradviz.record() as recording:
        ...         net(torch.ones(1, 2))
        ... except RuntimeError:
        ...     last = recording.last_outputs()
        >>> last.module, list(last.outputs)
        ('net.1', ['input of net.1'])
        """
        session = self._running()
        found = self._failure if error is None else unfinished(session, error)
        if found is None:
            raise GradvizError("no exception ended this recording, so nothing is unfinished: use graph(outputs)")
        if variables is None:
            variables = namespaces(sys._getframe(1))
        return found.last_outputs(session, module_paths(None, variables))

    def attribution(self, model: torch.nn.Module | None = None, variables: Sequence[Namespace] = ()) -> Recorded:
        """What `capture` needs to place nodes. The namespaces name the outermost modules."""
        session = self._running()
        return Recorded(self._spans(session), session.calls.trees(), module_paths(model, variables))

    def run_of(self, module: torch.nn.Module) -> ModuleRun:
        """What was seen of a module: how often it ran, and what its last call was like."""
        seen = self._running().calls.seen(module)
        if seen is None:
            return ModuleRun(0)
        checkpoint = with_text(seen.checkpoint) if seen.checkpoint is not None else None
        return ModuleRun(seen.calls, seen.recording, seen.gave_graph, seen.source, seen.began, checkpoint)

    def _running(self) -> Session:
        if self._session is None:
            raise GradvizError("this recording has not begun: use it as `with gradviz.record() as recording:`")
        return self._session

    def _spans(self, session: Session) -> list[Span]:
        ends = self._ends
        if ends is None:
            ends = {event_log: event_log.end for event_log in session.event_logs}
            ends[session.event_log()] = peek_sequence()
        return [Span(event_log, self._starts.get(event_log, event_log.start), end) for event_log, end in ends.items()]
