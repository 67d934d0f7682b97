"""The calls of the user's functions that made the nodes of a graph, and called its
modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gradviz.graph import FunctionCall, SourceLine
from gradviz.packages import code_line
from gradviz.recording.event_log import ModuleCall
from gradviz.recording.running import RunningCall


class Functions:
    """Calls that began after node `start`, by what was running. `scopes` has the modules
    that were called.
    """

    def __init__(
        self,
        start: int,
        scopes: Mapping[ModuleCall, int],
    ) -> None:
        self._start, self._scopes = start, scopes
        self._around: dict[RunningCall, _Call | None] = {}
        self._calls: list[_Call] = []
        for module, scope in scopes.items():
            call = self._named(module.function, module.parent)
            if call is not None:
                call.scopes.append(scope)

    def add_nodes(
        self,
        running: Sequence[RunningCall | None],
        modules: Sequence[ModuleCall | None],
        scopes: Sequence[int | None],
    ) -> None:
        """What was running, in which call of a module, as each node was made."""
        for node, scope in enumerate(scopes):
            call = self._named(running[node], modules[node])
            if call is None:
                continue
            if scope is not None and scope >= len(self._scopes):
                # of a module that was checkpointed, whose own call is not seen
                call.scopes.append(scope)
            else:
                call.nodes.append(node)

    def records(
        self,
        sources: Sequence[SourceLine | None],
    ) -> Iterator[FunctionCall]:
        """Those calls as they began, outer ones first; `sources` are the lines of all
        nodes.
        """
        ordered = sorted(self._calls, key=lambda call: call.running.began)
        number = {call.number: i for i, call in enumerate(ordered)}
        for call in ordered:
            if call.running.code is not None:
                first = call.running.code.co_firstlineno
                source: SourceLine | None = code_line(call.running.code, first)
            else:
                source = sources[call.nodes[0]] if call.nodes else None
            yield FunctionCall(
                source or SourceLine("", 0),
                number[call.parent] if call.parent is not None else None,
                call.scope,
                tuple(call.nodes),
                tuple(call.scopes),
                call.running.code is None,
            )

    def _named(
        self, running: RunningCall | None, module: ModuleCall | None
    ) -> _Call | None:
        """The innermost call whose function has a name, within that of a module."""
        end = module.function if module is not None else None
        inner: list[RunningCall] = []
        while running is not None and running is not end:
            if running in self._around:
                break
            inner.append(running)
            running = running.caller

        if running is None or running is end:
            call = None
        else:
            call = self._around[running]

        scope = self._scopes[module] if module is not None else None
        for running in reversed(inner):
            if self._has_name(running, is_outermost=call is None and scope is not None):
                parent = call.number if call is not None else None
                call = _Call(running, len(self._calls), parent, scope)
                self._calls.append(call)
            self._around[running] = call

        return call

    def _has_name(self, running: RunningCall, is_outermost: bool) -> bool:
        if running.began < self._start:
            return False  # what it made before is in no graph
        if running.code is None:
            return True
        name = running.code.co_name
        # the module says it already
        is_forward = name == "forward" and is_outermost
        return not is_forward and not name.startswith(("<", "__"))


@dataclass
class _Call:
    running: RunningCall
    number: int
    parent: int | None
    scope: int | None
    nodes: list[int] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)
