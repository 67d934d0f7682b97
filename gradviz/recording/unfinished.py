"""What a forward had computed when an exception ended it, and where it failed.

Holds tensors weakly only: while the exception's traceback exists it holds them, afterwards nobody does.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

import torch

from gradviz.errors import text_of
from gradviz.graph import SourceLine
from gradviz.packages import code_line, with_text
from gradviz.recording.calls import Call, EventLog
from gradviz.recording.session import Session
from gradviz.variables.objects import is_a
from gradviz.variables.scanner import namespaces
from gradviz.walker.private import without_subclasses
from gradviz.walker.tensors import grad_fn_of


class LastOutputs(NamedTuple):
    """`outputs` by what they are ("h", "input of encoder.1", "output of encoder.0"), only those with a graph.

    `module` is the path of the innermost module whose call failed, in the caller's names; None outside every module.
    """

    outputs: dict[str, torch.Tensor]
    module: str | None
    source: SourceLine | None
    error: str


@dataclass
class Unfinished:
    """The same, while nothing is held."""

    error: str
    source: SourceLine | None
    call: Call | None
    candidates: list[tuple[str, weakref.ref[torch.Tensor], Call | None]] = field(default_factory=list)

    def last_outputs(self, session: Session, module_paths: Mapping[int, str]) -> LastOutputs:
        """The candidates that are alive and have a graph, each tensor once. The caller's module paths are by identity."""
        session.calls.trees()  # settles the paths
        found: dict[str, torch.Tensor] = {}
        for what, reference, call in self.candidates:
            tensor = reference()
            if tensor is None or any(tensor is known for known in found.values()) or not _has_graph(tensor):
                continue
            name = f"{what} {_path(call, module_paths)}" if call is not None else what
            found.setdefault(name if name not in found else f"{name} ({len(found)})", tensor)
        module = _path(self.call, module_paths) if self.call is not None else None
        return LastOutputs(found, module, self.source, self.error)


def unfinished(session: Session, error: BaseException) -> Unfinished:
    """What is known about a failure, in the thread where it happened.

    Sources, the nearest first: what the failing module was given, variables of the user's function that failed, outputs
    of the module calls completed last.
    """
    event_log = session.event_log()
    source, local = _failing_code(session, error)
    failed = (
        event_log.failed if event_log.failed is not None and event_log.failed.call.frame in _frames(error) else None
    )
    own = _own_call(error)
    if own is not None and (failed is None or failed.call in _around(own)):
        failed = None
    result = Unfinished(f"{type(error).__name__}: {text_of(error)}", source, failed.call if failed else own)
    if failed is not None:
        result.candidates += [("input of", reference, failed.call) for reference in failed.arguments]
    result.candidates += [(name, weakref.ref(tensor), None) for name, tensor in local]
    result.candidates += _completed(event_log, result.call)
    return result


def _frames(error: BaseException) -> set[int]:
    """Identities of the frames that the exception passed through."""
    found: set[int] = set()
    trace = error.__traceback__
    while trace is not None:
        found.add(id(trace.tb_frame))
        trace = trace.tb_next
    return found


def _failing_code(session: Session, error: BaseException) -> tuple[SourceLine | None, list[tuple[str, torch.Tensor]]]:
    """The innermost line of the user's in the traceback, and the tensors among its local variables."""
    trace: TracebackType | None = error.__traceback__
    innermost = None
    while trace is not None:
        if session.user.holds(trace.tb_frame.f_code.co_filename):
            innermost = trace
        trace = trace.tb_next
    if innermost is None:
        return None, []
    code = innermost.tb_frame.f_code
    source = with_text(code_line(code, innermost.tb_lineno))
    variables = namespaces(innermost.tb_frame)[0]
    return source, [(name, value) for name, value in variables.items() if is_a(value, torch.Tensor)]


def _completed(event_log: EventLog, failed: Call | None) -> list[tuple[str, weakref.ref[torch.Tensor], Call | None]]:
    """Outputs of the last completed calls, the latest first. After a failed call only those of calls beside or above it."""
    outer = {None, *_around(failed)}
    return [
        ("output of", reference, done)
        for done, references in reversed(event_log.last)
        if failed is None or done.parent in outer
        for reference in references
    ]


def _around(call: Call | None) -> list[Call]:
    """The calls around a call, the nearest first."""
    found: list[Call] = []
    while call is not None and call.parent is not None:
        call = call.parent
        found.append(call)
    return found


def _own_call(error: BaseException) -> Call | None:
    """The innermost call that the exception left of those that run no hook; their frames carry them."""
    trace, found = error.__traceback__, None
    while trace is not None:
        mark = trace.tb_frame.f_trace
        found = mark if type(mark) is Call else found
        trace = trace.tb_next
    return found


def _path(call: Call, module_paths: Mapping[int, str]) -> str:
    """The caller's name for the module, else its path below the outermost one, else its class."""
    module = call.module.ref()
    known = module_paths.get(id(module)) if module is not None else None
    return known or call.tree.paths.get(call.module, "") or call.module.type


def _has_graph(tensor: torch.Tensor) -> bool:
    try:
        with without_subclasses():
            return grad_fn_of(tensor) is not None
    except RuntimeError:
        return False
