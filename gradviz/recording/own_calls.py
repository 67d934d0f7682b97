"""Calls of modules whose class has a `__call__` of its own, which runs no hook of torch's, as all of gpytorch's have.

Such modules often run each other's `forward` without a call; that counts as one. A call is seen from the frames that run
when a node is made: it began before the first node made inside and ended before the first one made outside. A call that makes
no node is not seen, and none matters. The frame carries the call as its trace function, which Python asks only under a
debugger: it lives as long as the frame, tells it from a later one at the same address, and holds nothing of the user's.
Costs nothing until such a class is met.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Protocol

import torch

from gradviz.packages import UserCode
from gradviz.recording.event_log import Call, EventLog, SeenModule, Tree
from gradviz.variables.scanner import first_argument


class Begin(Protocol):
    """Makes a new call at the end of an event log's stack."""

    def __call__(self, event_log: EventLog, module: torch.nn.Module, frame: FrameType, number: int) -> Call: ...


class OwnCalls:
    """Which code is such a `__call__`, or `forward` beside one, and which run. `codes` is empty until the first is met."""

    def __init__(self, user: UserCode, trees: dict[SeenModule, Tree], begin: Begin) -> None:
        self.codes: dict[int, CodeType] = {}
        self._others: dict[int, CodeType] = {}  # held, so that identities stay
        self._user, self._trees, self._begin = user, trees, begin
        user.met = self._met

    def follow(self, event_log: EventLog, frame: FrameType | None, number: int) -> None:
        """The node of this number is about to be made, or a call to begin, in this frame: end and begin what its frames say."""
        stack, codes = event_log.stack, self.codes
        running = {call.frame: call for call in stack}
        fresh: list[FrameType] = []  # the innermost first
        kept = 0
        while frame is not None:
            code = frame.f_code
            if id(code) in codes:
                mark = frame.f_trace
                call = mark if type(mark) is Call else running.get(id(frame)) if mark is not None else None
            else:
                call = running.get(id(frame))
            if call is not None and call in stack and (call.code is code or call is frame.f_trace):
                kept = len(stack) - stack[::-1].index(call)
                break
            if id(code) in codes:
                fresh.append(frame)
            frame = frame.f_back
        if not fresh and kept == len(stack) and event_log.calls.values[-1] is (stack[-1] if stack else None):
            return
        del stack[kept:]
        for frame in reversed(fresh):
            self._open(event_log, frame, number)
        event_log.calls.add(max(number, event_log.calls.numbers[-1]), stack[-1] if stack else None)
        if stack:
            _settle(stack[-1].tree)

    def forget(self, frame: FrameType | None) -> None:
        """Take the calls from the frames that run."""
        while frame is not None and self.codes:
            if type(frame.f_trace) is Call:
                frame.f_trace = None
            frame = frame.f_back

    def _open(self, event_log: EventLog, frame: FrameType, number: int) -> None:
        stack, call = event_log.stack, frame.f_trace
        if type(call) is not Call or self._trees.get(call.tree.seen) is not call.tree:  # else a generator that goes on
            module = first_argument(frame)
            if not _called_its_own_way(module):
                return
            outer = stack[-1] if stack else None
            if outer is not None and outer.module.ref() is module and self._leads_to(outer, frame):
                call = outer
            else:
                call = self._begin(event_log, module, frame, number)
            if frame.f_trace is None or type(frame.f_trace) is Call:
                frame.f_trace = call
        if not stack or stack[-1] is not call:
            stack.append(call)

    def _leads_to(self, call: Call, frame: FrameType) -> bool:
        """Whether this frame of the same module belongs to the call: its `forward`, or what `super().__call__` runs."""
        if frame.f_code.co_name != "__call__":
            return True
        around = frame.f_back
        while around is not None and not self._user.holds(around.f_code.co_filename):
            around = around.f_back
        if around is None or around.f_code.co_name != "__call__":
            return False
        return around.f_trace is call or id(around) == call.frame

    def _met(self, frame: FrameType | None) -> None:
        """Code runs for the first time: look at all frames, the outermost first."""
        frames = []
        while frame is not None:
            if frame.f_code.co_name in ("__call__", "forward"):
                frames.append(frame)
            frame = frame.f_back
        for frame in reversed(frames):
            code = frame.f_code
            if code.co_argcount and (self.codes or code.co_name == "__call__"):
                new = id(code) not in self.codes and id(code) not in self._others
                if new and self._user.holds(code.co_filename):
                    wanted = _called_its_own_way(first_argument(frame))
                    (self.codes if wanted else self._others)[id(code)] = code


def _called_its_own_way(module: object) -> bool:
    """Whether this is a module whose class overrides `nn.Module.__call__`. Runs nothing of the user's."""
    overrides = False
    for cls in type(module).__mro__:
        if cls is torch.nn.Module:
            return overrides
        overrides = overrides or "__call__" in vars(cls)
    return False


def _settle(tree: Tree) -> None:
    """Find the names now: an outermost module of this kind is not seen to end."""
    if tree.pending and torch._C._get_tracing_state() is None:
        try:
            tree.settle()
        except Exception:  # inside the making of a node: the names are asked for again when the graph is read
            pass
