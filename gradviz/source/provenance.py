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
from gradviz.source.search import CodeLocation, switch_around
from gradviz.source.statements import (
    LOOP,
    Statement,
    assigned,
    called,
    covers,
    expressions_at,
    names_of,
    nodes_of,
    recording_off,
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
    # the names that were met, and those of them whose line is still to be found
    met, wanted = [output], {output}
    ends = set[str]()
    made, cuts = None, list[Cut]()

    for statement in _upwards(location):
        names, value = assigned(statement.node)
        if value is None or wanted.isdisjoint(names):
            continue

        # a name whose line has nothing to follow is where it began
        ends |= wanted.intersection(names)
        wanted.difference_update(names)
        made = made or location.body.source(statement.node)
        cut = _cut(location, statement, value)
        read = [each for each in names_of(value) if _leads_on(location, each)]
        if cut is not None:
            cuts.append(cut)
        if cut is not None or read:
            ends.difference_update(names)
        # the graph ends at a cut, whatever else went in
        if cut is None or not cut.alive:
            fresh = [each for each in read if each not in met]
            met += fresh
            wanted.update(fresh)

    ends |= wanted
    plain = [each for each in dict.fromkeys(met[1:]) if each in ends]
    plain = [each for each in plain if _is_plain(location, each)]
    return Provenance(tuple(cuts), made, tuple(plain))


def _upwards(location: CodeLocation) -> list[Statement]:
    """The statements, the nearest above the line that runs now first. Those of the loop
    that it is in come first, for they ran before, too.
    """
    line, loops = location.line, nodes_of(location.body.file, *LOOP)
    if line is None:
        return list(reversed(location.body.statements))
    inner = [loop for loop in loops if covers(loop, line)][-1:]

    def nearness(statement: Statement) -> tuple[bool, bool, int]:
        number = statement.node.lineno
        inside = any(covers(loop, number) for loop in inner)
        return inside, number < line, number

    return sorted(location.body.statements, key=nearness, reverse=True)


def unrecorded(source: SourceLine) -> Cut:
    """What a line did that called something while recording was off."""
    expressions = expressions_at(source.file, source.line)
    calls = [part for part in expressions if isinstance(part, ast.Call)]
    of = text_of(calls[0], 40) if calls else ""
    off = switch_around(source.file, source.line)
    return Cut("no_grad", source, of=of, alive=True, off=off)


def _cut(
    location: CodeLocation,
    statement: Statement,
    value: ast.expr,
) -> Cut | None:
    """What a statement does that drops a graph, as far as its text says; the last call
    of several.
    """
    source, off = location.body.source(statement.node), None
    kind, lost = next(_calls_that_cut(value), (None, value))
    # in a block without recording it does not matter what is called
    if statement.off is not None:
        kind, lost = cast("DetachKind", recording_off(statement.off)), value
        off = location.body.source(statement.off)
    if kind is None:
        return None

    values = (value_of(name, location.variables) for name in names_of(lost))
    alive = any(map(_has_graph, values))
    return Cut(kind, source, of=text_of(lost, 40), alive=alive, off=off)


def _calls_that_cut(
    value: ast.expr,
) -> Iterator[tuple[DetachKind, ast.expr]]:
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
        parameter.requires_grad for parameter in parameters(value)
    )
