"""Reads the user's code around a backward call: where it is at, how outputs came about,
what changes in place, what is read.
"""

from __future__ import annotations

from dataclasses import replace

from gradviz.checks.call import BackwardCall, all_frozen
from gradviz.checks.collect.lines import users_frame
from gradviz.graph import column
from gradviz.packages import with_text
from gradviz.run.outputs import LiveOutputs
from gradviz.source.cut import Cut
from gradviz.source.provenance import Provenance, provenance, unrecorded
from gradviz.source.search import Change, CodeLocation, changes, freezes, grad_reads
from gradviz.source.statements import body_at, body_of
from gradviz.variables.scanner import value_of


def location_of(live: LiveOutputs) -> CodeLocation | None:
    """The line that runs now, or the end of a script whose global variables are left."""
    frame, file = users_frame(live.frame), value_of("__file__", live.variables)
    if frame is not None:
        body, line = (body_of(frame.f_code), frame.f_lineno)
    else:
        body, line = (body_at(str(file)), None)
    return CodeLocation(body, line, live.variables) if body.statements else None


def _provenances(
    context: BackwardCall, location: CodeLocation
) -> dict[str, Provenance]:
    """Where the roots without a graph come from, and all of them where a parameter is
    not used. Cuts that were seen count more.
    """
    unused = any(
        parameter.node is None and parameter.requires_grad
        for parameter in context.parameters
    )
    provenances, off = dict(context.provenances), _off(context)

    for root in context.graph.roots:
        if root.node is None or unused:
            read = provenance(location, root.name)
            seen = provenances.get(root.name)
            if seen is not None:
                cuts = seen.cuts
            else:
                cuts = read.cuts or (off if root.node is None else ())
            provenances[root.name] = read._replace(cuts=cuts)

    return provenances


def _off(context: BackwardCall) -> tuple[Cut, ...]:
    """The line that called a module with gradients off, where all that were called in
    this step were.
    """
    ran = [
        one.run
        for one in context.parameters
        if one.requires_grad and one.run is not None and one.run.calls
    ]
    here = [run for run in ran if run.began >= context.since and run.source is not None]
    if not here or any(run.recording for run in here) or here[-1].source is None:
        return ()
    return (unrecorded(with_text(here[-1].source)),)


def with_code(context: BackwardCall, location: CodeLocation) -> BackwardCall:
    stale = any("modified" in flags for flags in column(context.graph.nodes, "flags"))
    by_hand = any(times.changed for times in context.intervals.values())
    made: tuple[Change, ...] = tuple(changes(location.body)) if stale or by_hand else ()
    reads = grad_reads(location.body)
    named_tensors = tuple(
        tensor._replace(
            grad_read=next(
                (reads[name] for name in tensor.names if name in reads), None
            )
        )
        for tensor in context.named_tensors
    )

    return replace(
        context,
        provenances=_provenances(context, location),
        changes=made,
        named_tensors=named_tensors,
        backward=location.body.line(location.line)
        if context.call is not None and location.line is not None
        else None,
        reads_grad=bool(reads),
        frozen_at=freezes(location.body.file)
        if all_frozen(context.parameters)
        else None,
    )
