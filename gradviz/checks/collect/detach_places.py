"""Turns a cut that was seen into a record: the line of the user's, and the expression in it that loses its graph."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from gradviz.checks.collect.detach_watch import DetachEvent
from gradviz.graph import SourceLine
from gradviz.packages import with_text
from gradviz.source.provenance import DetachPoint
from gradviz.source.search import switch_above, switch_around
from gradviz.source.statements import expressions_at, text_of

_COMPARISONS = {"gt", "lt", "ge", "le", "eq", "ne", "__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__"}
_BUILT_IN = {"__float__": "float", "__int__": "int"}
_LIBRARIES = {"torch", "F", "nn", "functional", "np", "numpy"}


def described(event: DetachEvent, leaf: tuple[str, ...] = ()) -> DetachPoint:
    """The record of a cut. Where a library's code cuts, the line is the script's own, and `inside` says whose code it was."""
    where = event.where
    place = where.place
    if place is None:
        source, inside = SourceLine("", 0), ""
    else:
        source, inside = place.script_line or place.source, ""
        if place.script_line is not None:
            inside = f"{place.source.package} ({os.path.basename(place.source.file)}:{place.source.line})"
        elif source.function != "<module>":
            inside = source.function
    source = with_text(source)
    whole = where.kind in ("no_grad", "inference")
    lost = _whole(source) if whole else _lost(source, where.operation)
    of = next((text_of(expression, 40) for expression in lost), "") if not leaf or whole else leaf[0]
    switches = (switch_above(file, line) if above else switch_around(file, line) for file, line, above in where.stack)
    off = next(filter(None, switches), None)
    return DetachPoint(where.kind, source, of, True, inside, where.operation, event.at, leaf, off)


def _whole(source: SourceLine) -> Iterator[ast.expr]:
    """The outermost expressions of a line."""
    for node in expressions_at(source.file, source.line):
        if isinstance(getattr(node, "ctx", None), ast.Load) or not hasattr(node, "ctx"):
            yield node


def _lost(source: SourceLine, operation: str) -> Iterator[ast.expr]:
    """The expressions of a line that an operation was called on."""
    for node in expressions_at(source.file, source.line):
        if isinstance(node, ast.Compare) and operation in _COMPARISONS:
            yield node.left
        elif isinstance(node, ast.Attribute) and node.attr == operation == "data":
            yield node.value
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == _BUILT_IN.get(operation, operation):
                owner = called.value if isinstance(called, ast.Attribute) else None
                library = owner is None or ast.unparse(owner).rpartition(".")[2] in _LIBRARIES
                if not library and owner is not None:
                    yield owner
                elif node.args:
                    yield node.args[0]
