"""Keeps `torch.compile` away from what gradviz hangs into torch: its global hooks, and
its own functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch

_HOOK_TABLE = re.compile(r"_global_(forward|backward)_(pre_)?hooks")


class hide_global_hooks:
    """Makes a compiled module not warn about the global module hooks with these ids,
    until `remove()`.

    The warning is about hooks that the user set, and a user who turns warnings into
    errors would be stopped by it.
    """

    _NAME = "_has_any_global_hook"

    def __init__(self, ids: Collection[int]) -> None:
        home = torch.nn.modules.module
        # the function by which a compiled module decides to warn
        self._original = getattr(home, self._NAME, None)
        if self._original is None:
            return
        tables = [
            table
            for name, table in vars(home).items()
            if _HOOK_TABLE.match(name) and isinstance(table, dict)
        ]

        def any_of_the_users() -> bool:
            return any(key not in ids for table in tables for key in table)

        self._mine = any_of_the_users
        setattr(home, self._NAME, any_of_the_users)

    def remove(self) -> None:
        home = torch.nn.modules.module
        if self._original is not None and getattr(home, self._NAME, None) is self._mine:
            setattr(home, self._NAME, self._original)


_frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def pause_compiler(callback: Any = None) -> Any:
    """Have `torch.compile` leave alone what this thread calls from now on; with what
    this returned, have it go on.

    After a graph break it compiles every function that is called, ours too.
    """
    change = getattr(_frames, "set_eval_frame", None)
    return change(callback) if change is not None else None


def keep_from_compiler(function: Any) -> None:
    """Have `torch.compile` run this function as it is. Where it is inlined into what is
    compiled, it is traced all the same.
    """
    skip = getattr(_frames, "skip_code", None)
    if skip is not None:
        skip(function.__code__)
