"""The guard around what gradviz does itself while the user's code is under way: nothing
of the user's runs inside.

No mode sees an operation of gradviz's, no class of tensors is asked for an attribute,
and no signal handler runs in its midst: one that a signal asks for meanwhile runs right
after, where what it raises reaches the user's code. A class with a `__torch_dispatch__`
still computes its own numbers, so nobody may ask it for one (`values.why_unreadable`).
"""

from __future__ import annotations

from typing import Any

import torch

from gradviz.armour.signals import HANDLERS

_count_modes, _pop_mode, _push_mode = (
    torch._C._len_torch_dispatch_stack,
    torch._C._pop_torch_dispatch_stack,
    torch._C._push_on_torch_dispatch_stack,
)


class unseen:
    """Inside, no mode and no class of tensors of the user's sees an operation; a signal
    handler may run. Takes a microsecond.
    """

    __slots__ = ("_functions", "_modes")

    def __enter__(self) -> None:
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        count = _count_modes()
        self._modes = [_pop_mode(None) for _ in range(count)] if count else []

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            _push_mode(mode)
        self._functions.__exit__(*error)


class isolated(unseen):
    """Inside, nothing of the user's runs. May be nested; make one for each use.

    >>> with isolated():
    ...     total = torch.ones(2).sum()
    """

    __slots__ = ("_outermost",)

    def __enter__(self) -> None:
        self._outermost = HANDLERS.begin()
        super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._outermost:
            HANDLERS.end()


class unrecorded(isolated):
    """Inside, nothing of the user's runs, and nothing is recorded."""

    __slots__ = ("_recording",)

    def __enter__(self) -> None:
        super().__enter__()
        self._recording = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *error: Any) -> None:
        torch._C._set_grad_enabled(self._recording)
        super().__exit__(*error)
