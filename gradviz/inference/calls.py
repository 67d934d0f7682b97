"""Calls of modules, found from the operations that work with parameters: which of them belong to one call, and which call to which.

Sequence numbers put operations in the order they ran, and a call is an interval of that order. Positions are places in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from gradviz.graph.scopes import Registered

_RECURRENT = ("LSTM", "GRU", "RNN")
"""Modules that use each parameter many times in one call."""


class Call:
    """One call of a module, from position `start` to `end`, both inside."""

    __slots__ = ("end", "inner", "module", "parent", "start")

    def __init__(self, module: int, start: int, end: int, inner: list[Call]) -> None:
        self.module, self.start, self.end, self.inner = module, start, end, inner
        self.parent: Call | None = None
        for call in inner:
            call.parent = self


class _Item(NamedTuple):
    """Part of a call: an inner call, or an operation with a parameter of the module itself."""

    start: int
    end: int
    key: Hashable
    call: Call | None


def find_calls(
    modules: Sequence[Registered],
    anchored: dict[int, int],
    uses: Callable[[int], Hashable],
    depends: Callable[[Call, Call], bool],
) -> list[Call]:
    """All calls, inner ones before those around them. `anchored` is the module by position, sorted by position.

    `uses` tells operations of a module apart; `depends` says whether the second call works with what came out of the first.
    """
    own: dict[int, list[_Item]] = {}
    for position, module in anchored.items():
        own.setdefault(module, []).append(_Item(position, position, uses(position), None))
    positions = list(anchored)
    items = own  # what each module consists of; grows by the calls of inner modules
    found: list[Call] = []
    for module in range(len(modules) - 1, -1, -1):
        calls = []
        for run in _runs(sorted(items.pop(module, []), key=lambda item: item.start), positions):
            for part in _turns(modules[module], run, depends):
                inner = [item.call for item in part if item.call is not None]
                calls.append(Call(module, part[0].start, part[-1].end, inner))
        found.extend(calls)
        parent = modules[module].parent
        if parent is not None:
            items.setdefault(parent, []).extend(_Item(call.start, call.end, module, call) for call in calls)
    return found


def _runs(items: Sequence[_Item], positions: Sequence[int]) -> list[list[_Item]]:
    """Items between which nothing of other modules ran."""
    runs: list[list[_Item]] = []
    for item in items:
        if not runs or bisect_left(positions, item.start) > bisect_left(positions, runs[-1][-1].end) + 1:
            runs.append([])
        runs[-1].append(item)
    return runs


def _turns(module: Registered, run: list[_Item], depends: Callable[[Call, Call], bool]) -> list[list[_Item]]:
    """A run cut into calls: where it begins anew, and every turn consists of the same things."""
    starts = [i for i, item in enumerate(run) if item.key == run[0].key]
    if len(starts) == 1 or module.base in _RECURRENT:
        return [run]
    starts = [i for i in starts if i == 0 or run[i - 1].key != run[0].key or len(starts) == len(run)]
    turns = [run[start:end] for start, end in zip(starts, [*starts[1:], len(run)])]
    first = {item.key for item in turns[0]}
    if any({item.key for item in turn} != first for turn in turns):
        return [run]
    one, other = turns[0][0].call, (turns[1][0].call if len(turns) > 1 else None)
    if len(first) == 1 and not module.base and one is not None and other is not None and depends(one, other):
        return [run]  # a loop inside one call
    return turns
