"""Tells of every autograd node at the moment it is made, in the thread that makes it.

With anomaly mode on, torch asks `torch.fx.traceback.format_stack` for the stack of each node that it makes, from Python 3.10 to
3.13 and torch 2.6 to 2.15 alike. That is the one place where torch tells of a node without wrapping or running anything, so
gradviz switches the mode on, answers that call, and hides both: user code that asks for the mode sees, and sets, its own.
While backward runs the mode is the user's, since the engine would then print more when it fails, and hold more.

Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.fx.traceback

NO_STACK: list[str] = []
"""The answer that costs nothing: one object for all nodes."""

Made = Callable[[], list[str]]
"""Called for each node, by torch itself, in the thread that makes it. Answers `NO_STACK`, and must not raise."""

Around = Callable[["FrameType | None"], Callable[[], None]]
"""Called with the frame that starts a backward. What it returns is called when the engine has ended."""

_ENGINE = "_engine_run_backward"
_set, _is_on, _checks_nan = torch.set_anomaly_enabled, torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled


class NodeWatch:
    """Between `start` and `stop`, `made` is called for every node of this process and `around` for every backward."""

    def __init__(self, made: Made, around: Around) -> None:
        self._made, self._around = made, around
        self._lock = threading.Lock()
        self._running = 0  # backward calls
        self._rests = False
        self._users_on, self._users_check = False, True  # the mode as the user has it: on, and looking for nan
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        self._users_on, self._users_check = _is_on(), _checks_nan()
        self._stack_of_the_users = torch.fx.traceback.format_stack
        self._replace(torch.fx.traceback, "format_stack", self._made)
        self._replace(torch, "set_anomaly_enabled", self._users_set)
        self._replace(torch, "is_anomaly_enabled", lambda: self._users_on)
        self._replace(torch, "is_anomaly_check_nan_enabled", lambda: self._users_check)
        engine = self._engine(getattr(torch.autograd, _ENGINE))
        for home in (torch.autograd, torch.autograd.graph):
            self._replace(home, _ENGINE, engine)
        self._apply()

    def rest(self) -> None:
        """Tell of no more nodes. Backward calls are told of as before."""
        with self._lock:
            self._rests = True
            self._apply()

    def stop(self) -> None:
        """Leave everything as it was, and the mode as the user set it last."""
        while self._undo:
            self._undo.pop()()
        _set(self._users_on, self._users_check)

    def _replace(self, home: Any, name: str, mine: Any) -> None:
        original = getattr(home, name)
        setattr(home, name, mine)
        self._undo.append(lambda: setattr(home, name, original))

    def _with_stack(self) -> list[str]:
        """While the user has anomaly mode on: note the node, and answer as torch would."""
        self._made()
        stack = self._stack_of_the_users()
        return stack[:-1] if stack and __file__ in stack[-1] else stack

    def _users_set(self, enabled: bool, check_nan: bool = True) -> None:
        with self._lock:
            self._users_on, self._users_check = bool(enabled), bool(check_nan)
            self._apply()

    def _apply(self) -> None:
        torch.fx.traceback.format_stack = self._with_stack if self._users_on else self._made
        if self._users_on or self._running or self._rests:
            _set(self._users_on, self._users_check)
        else:
            _set(True, False)

    def _engine(self, original: Any) -> Any:
        def run_backward(*arguments: Any, **options: Any) -> Any:
            after = self._around(sys._getframe(1))
            self._count(1)
            try:
                return original(*arguments, **options)
            finally:
                self._count(-1)
                after()

        return run_backward

    def _count(self, more: int) -> None:
        with self._lock:
            self._running += more
            self._apply()
