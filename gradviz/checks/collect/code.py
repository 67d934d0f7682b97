"""Reads the user's code around a backward call: where it is at, how outputs came about, what changes in place, what is read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from gradviz.checks.collect.lines import dropped, users_frame
from gradviz.checks.context import CheckContext
from gradviz.cuts.torch_calls import PLAIN, is_real
from gradviz.graph import SourceLine, column
from gradviz.run.outputs import LiveOutputs
from gradviz.source.provenance import Provenance, provenance
from gradviz.source.search import Change, CodeLocation, changes, grad_reads, reads_again
from gradviz.source.statements import around, body_at, body_of, names_in, targets_of
from gradviz.variables.scanner import value_of

_SEVERAL = 3  # names that a line gives parts of a batch


def location_of(live: LiveOutputs) -> CodeLocation | None:
    """The line that runs now, or the end of a script whose global variables are left."""
    frame, file = users_frame(live.frame), value_of("__file__", live.variables)
    body, line = (body_of(frame.f_code), frame.f_lineno) if frame is not None else (body_at(str(file)), None)
    return CodeLocation(body, line, live.variables) if body.statements else None


def _provenances(context: CheckContext, location: CodeLocation) -> dict[str, Provenance]:
    """Where the roots without a graph come from, and all of them where a parameter is not used. Cuts that were seen count more."""
    unused = any(parameter.node is None and parameter.requires_grad for parameter in context.parameters)
    provenances = dict(context.provenances)
    for root in context.graph.roots:
        if root.node is None or unused:
            read = provenance(location, root.name)
            seen = provenances.get(root.name)
            provenances[root.name] = read if seen is None else Provenance(seen.cuts, read.made)
    return provenances


def unread(location: CodeLocation) -> Iterator[tuple[SourceLine, str]]:
    """Lines of a step that take several parts of a batch, of which one is a mask, or numbers, and is never read."""
    body, variables = location.body, location.variables[0] if location.variables else {}
    for statement, _ in body.statements:
        names = [name for target in targets_of(statement) for name in names_in(target)]
        if len(names) < _SEVERAL or not around(body.file, statement.lineno).loops:
            continue
        lost = [name for name in names if not name.startswith("_") and not reads_again(body.file, name, statement)]
        computed = len(names) > _SEVERAL or isinstance(getattr(statement, "value", None), ast.Tuple)
        if len(lost) == 1 and _is_part(variables.get(lost[0]), [variables.get(name) for name in names], computed):
            yield body.source(statement), lost[0]


def _is_part(value: Any, values: list[Any], computed: bool) -> bool:
    """Whether a tensor has as many rows as others, and is a mask, or data where numbers may be."""
    if type(value) not in PLAIN or not value.dim() or value.requires_grad:
        return False
    rows = [len(one) for one in values if type(one) in PLAIN and one.dim()]
    return rows.count(len(value)) > 1 and (value.dtype == torch.bool or (computed and is_real(value)))


def with_code(context: CheckContext, location: CodeLocation) -> CheckContext:
    stale = any("modified" in flags for flags in column(context.graph.nodes, "flags"))
    by_hand = any("w" in times[-1] for times in context.intervals.values() if times)
    made: tuple[Change, ...] = tuple(changes(location.body)) if stale or by_hand else ()
    reads = grad_reads(location.body)
    named_tensors = tuple(
        tensor._replace(grad_read=next((reads[name] for name in tensor.names if name in reads), None))
        for tensor in context.named_tensors
    )
    fate = cache(dropped)
    parameters = tuple(
        parameter._replace(dropped=fate(parameter.run.source))
        if parameter.node is None and parameter.requires_grad and parameter.run is not None
        else parameter
        for parameter in context.parameters
    )
    return replace(
        context,
        provenances=_provenances(context, location),
        changes=made,
        named_tensors=named_tensors,
        backward=location.body.line(location.line) if context.call is not None and location.line is not None else None,
        parameters=parameters,
        reads_grad=bool(reads),
    )
