"""What the watches have in common: functions of torch, of whose calls each is told,
facts of living objects, and notes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from gradviz.checks.collect.lines import line_at
from gradviz.checks.run import Misuse
from gradviz.packages import Place, PlaceOf
from gradviz.source.feeding import Line
from gradviz.walker.taps import all_tapped

F = TypeVar("F")
M = TypeVar("M", bound=Callable[..., object])
_NOTED = 100  # misuses
_tapped: dict[object, tuple[Any, ...]] = {}  # by method of an observer: the functions


def taps(*functions: object) -> Callable[[M], M]:
    """It is told of these functions, which are written in Python, when they begin."""

    def named(method: M) -> M:
        _tapped[method] = functions
        return method

    return named


class Misuses:
    """What the watches of one run have noted, one for each kind and line."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], Misuse] = {}
        # for those that are none where a loss is computed
        self._around: dict[tuple[str, str, int], set[Line]] = {}

    def note(
        self,
        kind: str,
        place: Place | None,
        *words: object,
        tensors: frozenset[int] = frozenset(),
        around: Iterable[Line] = (),
    ) -> None:
        if place is not None and len(self._found) < _NOTED:
            source = line_at(place)
            key = kind, source.file, source.line
            self._around.setdefault(key, set()).update(around)
            times = self._found[key].times if key in self._found else 0
            self._found[key] = Misuse(
                kind, source, tuple(map(str, words)), times + 1, tensors
            )

    def result(
        self,
        trained_with: Collection[Line] = (),
    ) -> tuple[Misuse, ...]:
        """All of them, but for those on lines, or called from lines, that a loss is
        computed from: `trained_with`.
        """
        return tuple(
            misuse
            for key, misuse in self._found.items()
            if self._around[key].isdisjoint(trained_with)
        )


class Observer:
    """Looks at calls of one run, in one thread. `place` tells the user's line of a
    frame.
    """

    def __init__(self, place: PlaceOf, misuses: Misuses) -> None:
        self._place, self._note = place, misuses.note
        self._begin()

    def _begin(self) -> None:
        """Nothing is known yet."""

    def watching(self) -> AbstractContextManager[None]:
        """Inside, it is told of the functions that it taps."""
        methods = [
            (getattr(self, name), method)
            for name, method in vars(type(self)).items()
            if method in _tapped
        ]
        return all_tapped(
            (function, told) for told, method in methods for function in _tapped[method]
        )


class ByIdentity(Generic[F]):
    """What is known of tensors, modules and the like, which are held weakly."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], F]] = {}

    def put(self, thing: Any, fact: F) -> None:
        key, known = id(thing), self._known

        def gone(ref: object) -> None:
            if key in known and known[key][0] is ref:
                del known[key]

        known[key] = weakref.ref(thing, gone), fact

    def of(self, thing: object) -> F | None:
        ref, fact = self._known.get(
            id(thing),
            (None, None),
        )
        return fact if ref is not None and ref() is thing else None
