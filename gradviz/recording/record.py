"""`record()`: notes module calls and source lines while the user's code runs, for the
graphs made meanwhile.

Puts together the session, what it noted, and the walker. Changes no result, no random
number and no graph; everything is undone on exit.
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
from gradviz.recording.attribution import Recorded, Span
from gradviz.recording.event_log import NOWHERE, EventLog
from gradviz.recording.failure import LastOutputs, last_outputs
from gradviz.recording.session import Session
from gradviz.variables.objects import reading_once
from gradviz.variables.scanner import Namespace, callers_variables, namespaces
from gradviz.walker.names import distinct, module_paths
from gradviz.walker.private import CAN_RECORD, peek_sequence
from gradviz.walker.walk import capture


class ModuleRun(NamedTuple):
    """What a recording saw of one module. All but `calls` is of its last call with
    tensors.
    """

    calls: int
    recording: bool = True  # whether autograd was recording when it was called
    source: SourceLine | None = None  # the line that called it
    # the sequence number that the next node would have got when it was called
    began: int = 0
    # that of a reentrant checkpoint around it of which no input requires grad
    checkpoint: SourceLine | None = None


def record() -> Recording:
    """Note, for every node made inside the `with`, the module call and the source line
    that made it.

    Returns
    -------
    Recording
        A context manager. Its `graph(outputs)` is `gradviz.walk(outputs)` plus what was
        noted; it works inside the `with` and after it. Nothing of the user's is kept
        alive by it.

    Raises
    ------
    GradvizError
        this torch does not tell the number of the next node.

    Notes
    -----
    Source:
    https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.module.register_module_forward_hook.html

    Examples
    --------
    >>> import torch, gradviz
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> with gradviz.record() as recording:
    ...     loss = net(torch.ones(1, 2)).sum()
    >>> graph = recording.graph(loss, model=net)
    >>> [(node.op, graph.scopes[node.scope].type) for node in graph.nodes[1:3]]
    [('ReluBackward0', 'ReLU'), ('AddmmBackward0', 'Linear')]
    """
    return Recording()


_open: list[Recording] = []


def open_recording() -> Recording | None:
    """The one that has been open for the longest, and so knows most; None while nothing
    is recorded.
    """
    return next(iter(_open), None)


class Recording:
    """What `record()` yields. Used once; keeps no tensor and no module alive."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._starts: dict[EventLog, int] = {}
        self._ends: dict[EventLog, int] | None = None

    def __repr__(self) -> str:
        if self._session is None:
            return "<Recording, not begun: with gradviz.record() as recording: ...>"
        return f"<Recording, {'open' if self._ends is None else 'ended'}: recording.graph(loss) returns the graph>"

    def __enter__(self) -> Recording:
        if self._session is not None:
            raise GradvizError(
                "this recording has been used already: call gradviz.record() for another one"
            )

        if not CAN_RECORD:
            raise GradvizError(
                f"torch {torch.__version__} does not tell the sequence number of the next node"
            )

        self._session = session = sessions.enter()
        self._starts = session.ends()
        _open.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        session = self._running()
        _open.remove(self)
        self._ends = session.ends()
        sessions.leave(session)

    def graph(
        self,
        outputs: object,
        model: torch.nn.Module | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        saved: bool = True,
    ) -> Graph:
        """The graph behind `outputs` with module calls and source lines. Arguments and
        errors: `gradviz.walk`.

        Module paths begin with the name that `model` or the caller's variables give the
        outermost module. Calls are counted within the graph: `Scope.call` is 2 at the
        second of the module's calls that led to `outputs`.
        """
        variables = callers_variables(sys._getframe(1))
        with reading_once():
            return capture(
                outputs,
                model=model,
                params=params,
                variables=variables,
                saved=saved,
                attribution=self.attribution(model, variables),
            ).graph

    def last_outputs(
        self, error: BaseException, variables: Sequence[Namespace] | None = None
    ) -> LastOutputs:
        """What a forward had computed when it failed, to be given to `graph`, and where
        it failed.

        Parameters
        ----------
        error
            the exception; its traceback holds the tensors.
        variables
            namespaces that name the modules; without it the caller's.

        Examples
        --------
        >>> import torch, gradviz
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(2, 1))
        >>> with gradviz.record() as recording:
        ...     try:
        ...         net(torch.ones(1, 2))
        ...     except RuntimeError as error:
        ...         last = recording.last_outputs(error)
        >>> last.module, list(last.outputs)
        ('net.1', ['input of net.1'])
        """
        if variables is None:
            variables = namespaces(sys._getframe(1))
        return last_outputs(error, variables)

    def attribution(
        self, model: torch.nn.Module | None = None, variables: Sequence[Namespace] = ()
    ) -> Recorded:
        """What `capture` needs to place nodes. The namespaces name the outermost
        modules.
        """
        session = self._running()
        paths = module_paths(model, variables)
        return Recorded(
            self._spans(session),
            session.calls.trees(),
            paths,
            tuple(session.others.names),
            session.now(sys._getframe()) if self._ends is None else NOWHERE,
        )

    def forget(self, number: int) -> int:
        """Drop what is known of this thread's nodes below a number. Returns the number
        that its next node would get.
        """
        self._running().event_log().forget(number)
        following: int = peek_sequence()
        return following

    def with_modules(self, variables: Sequence[Namespace]) -> Sequence[Namespace]:
        """The namespaces, and one more of the outermost modules that ran and that they
        do not lead to, by class.
        """
        paths = module_paths(None, variables)
        modules: dict[str, object] = {}
        for tree in self._running().calls.trees():
            module = tree.seen.ref()
            if module is not None and id(module) not in paths:
                modules[distinct(tree.seen.type, modules)] = module
        return [*variables, modules] if modules else variables

    def run_of(self, module: torch.nn.Module) -> ModuleRun:
        """What was seen of a module: how often it ran, and what its last call was like."""
        seen = self._running().calls.seen(module)
        if seen is None:
            return ModuleRun(0)

        place = seen.site.place if seen.site is not None else None
        return ModuleRun(
            seen.calls,
            seen.recording,
            place.source if place is not None else None,
            seen.began,
            with_text(seen.checkpoint) if seen.checkpoint is not None else None,
        )

    def _running(self) -> Session:
        if self._session is None:
            raise GradvizError(
                "this recording has not begun: use it as `with gradviz.record() as recording:`"
            )
        return self._session

    def _spans(self, session: Session) -> list[Span]:
        ends = self._ends if self._ends is not None else session.ends()
        return [
            Span(event_log, self._starts.get(event_log, event_log.start), end)
            for event_log, end in ends.items()
        ]
