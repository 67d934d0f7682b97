"""Python's own library as it was before the user's code ran: functions that the code
replaced do not reach what gradviz does meanwhile and afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

Replaced = list[tuple[dict[str, Any], dict[str, Any]]]
"""Variables of modules, each with those of their values that were replaced."""

_RUNNING = ("sys", "__main__")  # their functions are hooks, which a script may set


class Library:
    """The functions and classes of all modules of Python's library that are loaded."""

    def __init__(self) -> None:
        self._modules: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._seen = {*_RUNNING}
        self._is_back = False
        self.note()

    def note(self) -> None:
        """Note those of modules that were loaded since."""
        new = sys.modules.keys() - self._seen
        self._seen |= new
        for name in new:
            if name.partition(".")[0] in sys.stdlib_module_names:
                variables = getattr(sys.modules.get(name), "__dict__", {})
                self._modules.append((variables, dict(variables)))

    def put_back(self) -> Replaced:
        """Put back every function that was replaced. Returns what stood in its place."""
        replaced = []
        for variables, before in self._modules:
            # most are as they were: told without a line of Python for each, and of a copy,
            # for another thread may add some meanwhile
            if all(map(is_, [*variables.values()], before.values())):
                continue
            functions = {
                key: value
                for key, value in before.items()
                if callable(value) and variables.get(key, value) is not value
            }
            if functions:
                replaced.append((variables, {key: variables[key] for key in functions}))
                variables.update(functions)
        return replaced

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Inside, no function of the user's stands in the library. Takes about a
        millisecond, once where it is asked for inside itself.
        """
        if self._is_back:
            yield
            return
        replaced, self._is_back = self.put_back(), True
        try:
            yield
        finally:
            self._is_back = False
            replace_again(replaced)


def replace_again(replaced: Replaced) -> None:
    """Undo `Library.put_back`."""
    for variables, others in replaced:
        variables.update(others)
