"""How a tensor without a graph came about, as far as the code around says: follows
assignments upwards, and asks the live variables which of them have a graph.

Lines that cut are seen while they run (`gradviz.cuts`); this is for code that ran
before somebody watched, and for blocks that switch recording off. Runs nothing of the
user's: no property, no call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch

from gradviz.graph import SourceLine
from gradviz.source.cut import METHODS, Cut, DetachKind
from gradviz.source.search import FOLLOWED, CodeLocation, switch_around
from gradviz.source.statements import (
    Statement,
    assigned,
    called,
    expressions_at,
    loops_around,
    names_of,
    subject,
    text_of,
)
from gradviz.variables.objects import parameters
from gradviz.variables.scanner import value_of
from gradviz.walker.isolation import isolated


class Provenance(NamedTuple):
    """How an output came about, as far as the code and the variables tell: cuts, the
    last one first.
    """

    cuts: tuple[Cut, ...] = ()
    made: SourceLine | None = None  # the line that computes the output
    # tensors that it was computed from and that do not require grad
    plain: tuple[str, ...] = ()


_FOLLOWED = (torch.Tensor, int, float, list, tuple, dict, type(None))


def provenance(location: CodeLocation, name: str) -> Provenance:
    """How the value of a variable came about: the lines that gave it and what it was
    computed from their values. What has a graph now is not followed further.
    """
    output = re.split(r"[\[(.]", name)[0]
    readers: dict[str, int | None] = {output: location.line}
    waiting = [output]
    computed, cuts, plain = list[SourceLine](), list[Cut](), list[str]()

    for name in waiting:  # grows while it is read
        statement = _assignment(location, name, readers[name])
        value = assigned(statement.node)[1] if statement is not None else None
        cut, follow = None, list[str]()

        if statement is not None and value is not None:
            computed.append(location.body.source(statement.node))
            cut = _cut(location, statement, value)
            follow = [read for read in names_of(value) if _leads_on(location, read)]
        if cut is not None:
            cuts.append(cut)
            if cut.alive:
                continue  # the graph ends here, whatever else went in
        elif not follow and name != output and _is_plain(location, name):
            plain.append(name)

        for read in follow:
            if read not in readers and len(readers) < FOLLOWED:
                readers[read] = statement.node.lineno if statement is not None else None
                waiting.append(read)

    return Provenance(tuple(cuts), next(iter(computed), None), tuple(plain))


def unrecorded(source: SourceLine) -> Cut:
    """What a line did that called something while recording was off."""
    expressions = expressions_at(source.file, source.line)
    calls = [part for part in expressions if isinstance(part, ast.Call)]
    return Cut(
        "no_grad",
        source,
        of=text_of(calls[0], 40) if calls else "",
        alive=True,
        off=switch_around(source.file, source.line),
    )


def _assignment(
    location: CodeLocation, name: str, line: int | None
) -> Statement | None:
    """The last assignment to a name above the line that reads it; in a loop it may
    stand below, and comes before one outside of the loop.
    """
    assignments = [
        statement
        for statement in location.body.statements
        if name in assigned(statement.node)[0]
    ]
    if line is None or not assignments:
        return assignments[-1] if assignments else None

    def nearness(statement: Statement) -> tuple[bool, bool, int]:
        number = statement.node.lineno
        inside = bool(loops) and loops[-1:] == loops_around(file, number)[-1:]
        return inside, number < line, number

    file = location.body.file
    loops = loops_around(file, line)
    return max(assignments, key=nearness)


def _cut(location: CodeLocation, statement: Statement, value: ast.expr) -> Cut | None:
    """What a statement does that drops a graph, as far as its text says; the last call
    of several.
    """
    source = location.body.source(statement.node)
    found = list(_calls_that_cut(value))
    off = None
    if statement.off:
        found = [(cast("DetachKind", statement.off), value)]
        off = switch_around(source.file, source.line)
    if not found:
        return None

    kind, lost = found[0]

    values = (value_of(name, location.variables) for name in names_of(lost))
    alive = any(_has_graph(variable) for variable in values)
    return Cut(kind, source, of=text_of(lost, 40), alive=alive, off=off)


def _calls_that_cut(value: ast.expr) -> Iterator[tuple[DetachKind, ast.expr]]:
    """How each call in an expression drops a graph, and what loses it: the outer ones
    first.
    """
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and called(node) in METHODS:
            for lost in subject(node):
                yield METHODS[called(node)], lost


def _leads_on(location: CodeLocation, name: str) -> bool:
    """Whether a variable could hold what was computed from a tensor, without a graph."""
    value = value_of(name, location.variables)
    return isinstance(value, _FOLLOWED) and not _has_graph(value)


def _is_plain(location: CodeLocation, name: str) -> bool:
    value = value_of(name, location.variables)
    return isinstance(value, torch.Tensor) and not _has_graph(value)


def _has_graph(value: Any) -> bool:
    """Whether a value is a tensor that requires grad, or a module that could give it a
    graph.
    """
    if issubclass(type(value), torch.Tensor):
        with isolated():
            return bool(value.requires_grad)
    return issubclass(type(value), torch.nn.Module) and any(
        one.requires_grad for one in parameters(value)
    )
