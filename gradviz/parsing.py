"""Parses and compiles the user's code once more, without the warnings that Python gave of it the first time"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

NAME = "<gradviz>"
"""What compiled text is called as a file."""
_QUIET: Any = ("ignore", None, Warning, re.compile(NAME), 0)


def parse(text: str) -> ast.Module:
    """The syntax of a text. Raises what `ast.parse` does."""
    with without_warnings():
        return ast.parse(text, NAME)


def code_of(unit: Any, mode: str, flags: int) -> CodeType:
    """The code object of a syntax tree. Raises what `compile` does."""
    with without_warnings():
        code: CodeType = compile(unit, NAME, mode, flags=flags, dont_inherit=True)
        return code


@contextmanager
def without_warnings() -> Iterator[None]:
    """Nothing is said of `NAME`.

    `catch_warnings` would have Python repeat what the user's code was told once.
    """
    filters: Any = warnings.filters
    filters.insert(0, _QUIET)
    try:
        yield
    finally:
        filters.remove(_QUIET)
