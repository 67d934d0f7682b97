"""Where a class of the user's makes an attribute of its objects. Reads text; runs
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType

import torch

from gradviz.graph import SourceLine
from gradviz.source.statements import assigned, body_of


def assignment_in(code: CodeType | None, attribute: str) -> SourceLine | None:
    """The line of a method that assigns an attribute of its first argument."""
    # its text is read where the code has the name at all
    if code is None or not code.co_varnames or attribute not in code.co_names:
        return None
    body, name = body_of(code), f"{code.co_varnames[0]}.{attribute}"
    for node in body.statements:
        if name in assigned(node)[0]:
            return body.source(node)
    return None


def made_at(kind: type, attribute: str) -> SourceLine | None:
    """The line of a class, or of a base of it past torch's own, that assigns an
    attribute of `self`.
    """
    for base in filter(_is_users, kind.__mro__):
        # any method may assign it, not only __init__()
        for value in vars(base).values():
            line = assignment_in(getattr(value, "__code__", None), attribute)
            if line is not None:
                return line
    return None


def _is_users(kind: type) -> bool:
    return not kind.__module__.startswith(("torch.", "builtins"))


def class_around(
    modules: Mapping[str, torch.nn.Module], path: str
) -> tuple[type, str] | None:
    """The nearest class of the user's around the parameter with this path, and the
    attribute of it that leads there.
    """
    while path:
        path, _, attribute = path.rpartition(".")
        users = filter(_is_users, type(modules.get(path)).__mro__)
        kind = next(users, None)
        if kind is not None:
            return kind, attribute
    return None
