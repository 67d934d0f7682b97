"""`record()`: notes module calls and source lines while the user's code runs, for the
graphs made meanwhile.

Puts together the session, what it noted, and the walker, and says what a forward had
computed when an exception ended it. Changes no result, no random number and no graph;
everything is undone on exit. Holds tensors weakly: while the exception's traceback
exists it holds them, afterwards nobody does.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from traceback import walk_tb
from types import TracebackType
from typing import NamedTuple

import torch

from gradviz.errors import GradvizError, text_of
from gradviz.graph import Graph, SourceLine
from gradviz.packages import code_line, is_foundation, with_text
from gradviz.recording import session as sessions
from gradviz.recording.attribution import Recorded, Span
from gradviz.recording.event_log import EventLog, ModuleCall
from gradviz.recording.session import Session
from gradviz.variables.objects import is_a, reading_once
from gradviz.variables.scanner import Namespace, callers_variables, namespaces
from gradviz.walker.isolation import isolated
from gradviz.walker.names import distinct, module_paths
from gradviz.walker.private import CAN_RECORD, peek_sequence
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import capture


class LastOutputs(NamedTuple):
    """`outputs` by what they are ("h", "input of encoder.1", "output of encoder.0"),
    only those with a graph.

    `module` is the path of the innermost module whose call failed, in the caller's
    names; None outside every module.
    """

    outputs: dict[str, torch.Tensor]
    module: str | None
    source: SourceLine | None
    error: str


@dataclass
class _Unfinished:
    """The same, while nothing is held."""

    error: str
    source: SourceLine | None
    call: ModuleCall | None
    candidates: list[tuple[str, weakref.ref[torch.Tensor], ModuleCall | None]] = field(
        default_factory=list
    )

    def last_outputs(
        self, session: Session, module_paths: Mapping[int, str]
    ) -> LastOutputs:
        """The candidates that are alive and have a graph, each tensor once. The
        caller's module paths are by identity.
        """
        session.calls.trees()  # settles the paths
        outputs: dict[str, torch.Tensor] = {}

        for role, reference, call in self.candidates:
            tensor = reference()
            if (
                # by identity, since `==` would compare the values
                tensor is None
                or any(tensor is output for output in outputs.values())
                or not _has_graph(tensor)
            ):
                continue
            name = f"{role} {_path(call, module_paths)}" if call is not None else role
            outputs.setdefault(
                name if name not in outputs else f"{name} ({len(outputs)})", tensor
            )

        module = _path(self.call, module_paths) if self.call is not None else None
        return LastOutputs(outputs, module, self.source, self.error)


def _unfinished(session: Session, error: BaseException) -> _Unfinished:
    """What is known about a failure, in the thread where it happened.

    Sources, the nearest first: what the failing module was given, variables of the
    user's function that failed, outputs of the module calls completed last.
    """
    event_log = session.event_log()
    source, local = _failing_code(error)
    failed, passed = (
        event_log.failed,
        {id(frame) for frame, _ in walk_tb(error.__traceback__)},
    )
    if failed is not None and failed.call.frame not in passed:
        # that call failed with another exception, which the user's code caught
        failed = None

    result = _Unfinished(
        f"{type(error).__name__}: {text_of(error)}",
        source,
        failed.call if failed else None,
    )
    if failed is not None:
        result.candidates += [
            ("input of", reference, failed.call) for reference in failed.arguments
        ]

    result.candidates += [(name, weakref.ref(tensor), None) for name, tensor in local]
    result.candidates += _completed(event_log, result.call)
    return result


def _failing_code(
    error: BaseException,
) -> tuple[SourceLine | None, list[tuple[str, torch.Tensor]]]:
    """The innermost line of the user's in the traceback, and the tensors among its
    local variables.
    """
    users = [
        (frame, line)
        for frame, line in walk_tb(error.__traceback__)
        if not is_foundation(frame.f_code.co_filename)
    ]
    if not users:
        return None, []

    frame, line = users[-1]
    variables = namespaces(frame)[0]
    tensors = [
        (name, value) for name, value in variables.items() if is_a(value, torch.Tensor)
    ]

    return with_text(code_line(frame.f_code, line)), tensors


def _completed(
    event_log: EventLog, failed: ModuleCall | None
) -> list[tuple[str, weakref.ref[torch.Tensor], ModuleCall | None]]:
    """Outputs of the last completed calls, the latest first. After a failed call only
    those of calls beside or above it.
    """
    outer = {None, *_around(failed)}
    return [
        ("output of", reference, done)
        for done, references in reversed(event_log.last)
        if failed is None or done.parent in outer
        for reference in references
    ]


def _around(call: ModuleCall | None) -> list[ModuleCall]:
    """The calls around a call, the nearest first."""
    calls: list[ModuleCall] = []
    while call is not None and call.parent is not None:
        call = call.parent
        calls.append(call)
    return calls


def _path(call: ModuleCall, module_paths: Mapping[int, str]) -> str:
    """The caller's name for the module, else its path below the outermost one, else its
    class.
    """
    module = call.module.ref()
    name = module_paths.get(id(module)) if module is not None else None
    return name or call.tree.paths.get(call.module, "") or call.module.type


def _has_graph(tensor: torch.Tensor) -> bool:
    try:
        with isolated():
            return grad_fn_of(tensor) is not None
    except RuntimeError:
        return False


class ModuleRun(NamedTuple):
    """What a recording saw of one module. All but `calls` is of its last call with
    tensors.
    """

    calls: int
    recording: bool = True  # whether autograd was recording when it was called
    gave_graph: bool = True  # whether a tensor that it returned requires grad
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
        self._failure: _Unfinished | None = None

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
        try:
            if error is not None:
                self._failure = _unfinished(session, error)
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
            )

    def last_outputs(
        self,
        error: BaseException | None = None,
        variables: Sequence[Namespace] | None = None,
    ) -> LastOutputs:
        """What a forward had computed when it failed, to be given to `graph`, and where
        it failed.

        Parameters
        ----------
        error
            the exception, when the user's code caught it inside the `with`; else
            it is the one that ended the `with`.
        variables
            namespaces that name the modules; without it the caller's.

        Raises
        ------
        GradvizError
            no exception ended this recording, and none was given.

        Notes
        -----
        The tensors are held weakly: they are there as long as the exception's
        traceback, or the user, holds them.

        Examples
        --------
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
        failure = self._failure if error is None else _unfinished(session, error)
        if failure is None:
            raise GradvizError(
                "no exception ended this recording, so nothing is unfinished: use graph(outputs)"
            )
        if variables is None:
            variables = namespaces(sys._getframe(1))
        return failure.last_outputs(session, module_paths(None, variables))

    def attribution(
        self,
        model: torch.nn.Module | None = None,
        variables: Sequence[Namespace] = (),
        timed: bool = False,
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
            timed,
        )

    def forget(self, number: int) -> int:
        """Drop what is known of this thread's nodes below a number. Returns the number
        that its next node would get.
        """
        self._running().event_log().forget(number)
        following: int = peek_sequence()
        return following

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Time the module calls that begin from now on by this clock."""
        self._running().calls.clock = clock

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

        checkpoint = with_text(seen.checkpoint) if seen.checkpoint is not None else None
        return ModuleRun(
            seen.calls,
            seen.recording,
            seen.gave_graph,
            seen.source,
            seen.began,
            checkpoint,
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
