"""What long-running code says of itself: which stage it is in and how far it is, for
whoever watches.

Code opens a stage and knows nobody; a watcher in another thread looks at the open
stages whenever it likes. When nobody watches, as in a notebook or a script, a stage
costs one look-up. Nothing here prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class Stage:
    """One stage of a long task, open inside its `with`.

    Parameters
    ----------
    name
        one word, such as "walk".
    unit
        what is counted, in the plural, such as "nodes". Without it only the time
        is known.
    done
        how many of them are done. Called in another thread at any moment, so that
        the loop itself pays nothing.
    total
        how many there will be, when that is known.
    doing
        what is being done or waited for, where there is nothing to count.

    >>> found = [1, 2]
    >>> with watched() as stages, Stage("walk", "nodes", found.__len__):
    ...     [(stage.name, stage.count()) for stage in stages]
    [('walk', 2)]
    """

    def __init__(
        self,
        name: str,
        unit: str = "",
        done: Callable[[], int] | None = None,
        total: int | None = None,
        doing: str = "",
    ) -> None:
        self.name, self.unit, self.total, self.doing = name, unit, total, doing
        # the name of the phase that it is in, when it has phases; they are what is
        # counted then
        self.phase = ""
        self.began = 0.0
        self._done, self._counted = done, 0
        self._among: list[Stage] | None = None

    def __enter__(self) -> Stage:
        self._among = _open.get()
        if self._among is not None:
            self.began = time.monotonic()
            self._among.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._among is not None:
            with suppress(ValueError):
                self._among.remove(self)

    def each(self, items: Iterable[T]) -> Iterable[T]:
        """The same items, counted as they are taken, if anybody watches."""
        return items if self._among is None else self._counting(items)

    def _counting(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            yield item
            self._counted += 1

    def begin_phase(self, name: str) -> None:
        self.phase = name
        self._counted += 1

    def count(self) -> int:
        """How many are done by now, of phases which one it is in. Never raises."""
        # it looks at what another thread is in the middle of changing
        with suppress(Exception):
            return self._done() if self._done is not None else self._counted
        return 0


_open: ContextVar[list[Stage] | None] = ContextVar("gradviz_stages", default=None)


@contextmanager
def watched() -> Iterator[list[Stage]]:
    """The stages that are open inside the block at any moment, the innermost last."""
    stages: list[Stage] = []
    token = _open.set(stages)
    try:
        yield stages
    finally:
        _open.reset(token)


def is_watched() -> bool:
    """Whether somebody watches the stages of this thread."""
    return _open.get() is not None


def phase(name: str, *, of: int | None = None) -> None:
    """Say that the innermost stage is in its next phase, and `of` how many phases it
    has, once that is known.
    """
    stages = _open.get()
    if stages:
        if of is not None:
            stages[-1].total = of
        stages[-1].begin_phase(name)
