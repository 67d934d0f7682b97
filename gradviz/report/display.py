"""How results show themselves: as a table in `print`, in rich and in a notebook. Their `repr` is a line of their own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T", bound=type)


def displayed(table: str) -> Callable[[T], T]:
    """A class decorator. `table` is the whole name of what makes the rich table of a result.

    >>> @displayed("gradviz.memory.table.saved_table")
    ... class Found: ...
    >>> {"__str__", "__rich__", "_repr_html_"} <= set(vars(Found))
    True
    """
    module, _, name = table.rpartition(".")

    def made(self: Any) -> Any:
        return getattr(import_module(module), name)(self)

    def text(self: Any) -> str:
        from gradviz.report.plain import plain

        return plain(made(self))

    def html(self: Any) -> str:
        from gradviz.report.plain import html

        return html(made(self))

    def decorate(decorated: T) -> T:
        for method, function in (("__rich__", made), ("__str__", text), ("_repr_html_", html)):
            setattr(decorated, method, function)
        return decorated

    return decorate
