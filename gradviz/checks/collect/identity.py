"""What is known of living objects, by their identity, without keeping them alive."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

F = TypeVar("F")


class ByIdentity(Generic[F]):
    """Facts of tensors, modules and the like, which are held weakly."""

    def __init__(self) -> None:
        self._facts: dict[int, tuple[weakref.ref[Any], F]] = {}

    def put(self, thing: Any, fact: F) -> None:
        key, facts = id(thing), self._facts

        def gone(ref: object) -> None:
            # a new object may have the same id by now, and facts of its own
            if key in facts and facts[key][0] is ref:
                del facts[key]

        facts[key] = weakref.ref(thing, gone), fact

    def of(self, thing: object) -> F | None:
        ref, fact = self._facts.get(
            id(thing),
            (None, None),
        )
        # the id may have been that of an object that is gone
        return fact if ref is not None and ref() is thing else None

    def alive(self) -> list[tuple[Any, F]]:
        """The things that are still there, with their facts."""
        pairs = [(ref(), fact) for ref, fact in list(self._facts.values())]
        return [(thing, fact) for thing, fact in pairs if thing is not None]
