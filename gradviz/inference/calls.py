"""Calls of modules as intervals of the order in which operations ran, found from the
anchors: which of them belong to one call, and which call to which.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gradviz.graph.origins import Registered
from gradviz.inference.anchors import Anchor
from gradviz.inference.steps import keys_of


@dataclass(slots=True, eq=False)
class InferredCall:
    """One call of a module, from position `start` to `end`, both inside. `parent` is the
    call around it.
    """

    module: int
    start: int
    end: int
    parent: InferredCall | None = None

    def widen(self, position: int) -> None:
        """Let this call, and all around it, reach to a position."""
        call: InferredCall | None = self
        while call is not None and not call.start <= position <= call.end:
            call.start, call.end = min(call.start, position), max(call.end, position)
            call = call.parent


class _Part(NamedTuple):
    """Part of a call: one anchor of the module itself, or an inner call, with the places
    of its first and last anchor. Parts with the same key do the same.
    """

    first: int
    last: int
    key: Hashable
    call: InferredCall | None = None


def find_calls(
    modules: Sequence[Registered], anchors: Sequence[Anchor]
) -> tuple[list[InferredCall], list[InferredCall]]:
    """All calls of modules with anchors, inner ones before those around them; and by
    anchor the call that it is a part of.
    """
    parts: list[list[_Part]] = [[] for _ in modules]
    for i, anchor in enumerate(anchors):
        parts[anchor.module].append(_Part(i, i, anchor.key))

    calls: list[InferredCall] = []
    innermost: dict[int, InferredCall] = {}
    for module in reversed(range(len(modules))):  # inner ones first
        outer = modules[module].parent
        for run in _runs(sorted(parts[module])):
            for turn in _turns(modules, module, run):
                first, last = turn[0].first, turn[-1].last
                start, end = anchors[first].position, anchors[last].position
                call = InferredCall(module, start, end)
                calls.append(call)
                for part in turn:
                    if part.call is None:
                        innermost[part.first] = call
                    else:
                        part.call.parent = call
                if outer is not None:
                    parts[outer].append(_Part(first, last, module, call))

    return calls, [innermost[i] for i in range(len(anchors))]


def _runs(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Parts between which nothing of other modules ran."""
    runs: list[list[_Part]] = []
    for part in parts:
        if not runs or part.first > runs[-1][-1].last + 1:
            runs.append([])
        runs[-1].append(part)
    return runs


def _turns(
    modules: Sequence[Registered], module: int, run: list[_Part]
) -> list[list[_Part]]:
    """A run cut into calls: where it begins anew, and every turn consists of the same
    parts.
    """
    keys = [part.key for part in run]
    starts = [i for i, key in enumerate(keys) if key == keys[0]]
    if len(starts) < len(run):
        starts = [i for i in starts if i == 0 or keys[i - 1] != keys[0]]
    elif run[0].call is not None and _repeats(modules, module, run[0].call.module):
        return [run]

    bounds = [*pairwise([*starts, len(run)])]
    kinds = {frozenset(keys[start:end]) for start, end in bounds}
    return [run[start:end] for start, end in bounds] if len(kinds) == 1 else [run]


def _repeats(modules: Sequence[Registered], outer: int, inner: int) -> bool:
    """Whether the code of a module calls the one inside it in a loop, for all we know."""
    steps = modules[outer].steps
    if steps is None:
        return not modules[outer].base
    keys = keys_of(modules[inner].key)
    return sum(child in keys for child, _ in steps) > 1
