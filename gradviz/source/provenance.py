"""How a tensor without a graph came about, as far as the code around says: follows
assignments upwards, and asks the live variables which of them have a graph.

Lines that cut are seen while they run (`gradviz.cuts`); this is for code that ran
before somebody watched, and for blocks that switch recording off. Runs nothing of the
user's: no property, no call.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch

from gradviz.graph import SourceLine
from gradviz.source.cut import METHODS, Cut, DetachKind
from gradviz.source.statements import (
    Body,
    assigned,
    called,
    covers,
    expressions_at,
    loops_around,
    names_of,
    recording_off,
    subject,
    switch_around,
)
from gradviz.variables.objects import parameters
from gradviz.variables.scanner import Namespace, value_of
from gradviz.walker.isolation import isolated
from gradviz.wording import clip


class CodeLocation(NamedTuple):
    """Where the user's code is at. `line` is None when it has ended."""

    body: Body
    line: int | None
    variables: Sequence[Namespace]


class Provenance(NamedTuple):
    """How an output came about, as far as the code and the variables tell: cuts, the
    last one first.
    """

    cuts: tuple[Cut, ...] = ()
    made: SourceLine | None = None  # the line that computes the output
    # tensors that it was computed from and that do not require grad
    plain: tuple[str, ...] = ()


# what could hold what was computed from a tensor
_FOLLOWED = (torch.Tensor, int, float, list, tuple, dict, type(None))


def provenance(location: CodeLocation, name: str) -> Provenance:
    """How the value of a variable came about: the lines that gave it and what it was
    computed from their values. What has a graph now is not followed further.
    """
    output = re.split(r"[\[(.]", name)[0]
    # the names that were met, and those of them whose line is still to be found
    met, wanted = {output: None}, {output}
    explained, first, cuts = {output}, None, list[Cut]()

    for statement in _upwards(location):
        names, value = assigned(statement)
        found = wanted.intersection(names)
        if value is None or not found:
            continue

        wanted -= found
        first = first or location.body.source(statement)
        cut = _cut(location, statement, value)
        read = [
            each for each in names_of(value) if _lacks_graph(location, each, *_FOLLOWED)
        ]
        if cut is not None:
            cuts.append(cut)
        if cut is not None or read:
            explained |= found
        # the graph ends at a cut, whatever else went in
        if cut is None or not cut.alive:
            wanted.update(set(read).difference(met))
            met |= dict.fromkeys(read)

    plain = [each for each in met if each not in explained]
    plain = [each for each in plain if _lacks_graph(location, each, torch.Tensor)]
    return Provenance(tuple(cuts), first, tuple(plain))


def _upwards(location: CodeLocation) -> list[ast.stmt]:
    """The statements, the nearest above the line that runs now first. Those of the loop
    that it is in come first, for they ran before, too.
    """
    line = location.line or sys.maxsize
    inner = loops_around(location.body.file, line)[-1:]

    def nearness(statement: ast.stmt) -> tuple[bool, bool, int]:
        number = statement.lineno
        inside = any(covers(loop, number) for loop in inner)
        return inside, number < line, number

    return sorted(location.body.statements, key=nearness, reverse=True)


def unrecorded(source: SourceLine) -> Cut:
    """What a line did that called something while recording was off."""
    expressions = expressions_at(source.file, source.line)
    calls = [part for part in expressions if isinstance(part, ast.Call)]
    of = clip(ast.unparse(calls[0]), 40) if calls else ""
    off = switch_around(source.file, source.line)
    return Cut("no_grad", source, of=of, part=of, off=off)


def _cut(location: CodeLocation, statement: ast.stmt, value: ast.expr) -> Cut | None:
    """What a statement does that drops a graph, as far as its text says; the last call
    of several.
    """
    off = switch_around(location.body.file, statement.lineno)
    kind, part, lost = next(_calls_that_cut(value), (None, value, value))
    # in a block without recording it does not matter what is called
    if off is not None:
        kind = cast("DetachKind", recording_off(off.text))
        part = lost = value
    if kind is None:
        return None

    values = (value_of(name, location.variables) for name in names_of(lost))
    return Cut(
        kind,
        location.body.source(statement),
        of=clip(ast.unparse(lost), 40),
        part=ast.unparse(part),
        alive=any(map(_has_graph, values)),
        off=off,
    )


def _calls_that_cut(
    value: ast.expr,
) -> Iterator[tuple[DetachKind | None, ast.expr, ast.expr]]:
    """How each call in an expression drops a graph, the call, and what loses it: the
    outer ones first.
    """
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and called(node) in METHODS:
            for lost in subject(node):
                yield METHODS[called(node)], node, lost


def _lacks_graph(location: CodeLocation, name: str, *kinds: type) -> bool:
    """Whether a variable is one of these kinds of things, without a graph."""
    value = value_of(name, location.variables)
    return isinstance(value, kinds) and not _has_graph(value)


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
