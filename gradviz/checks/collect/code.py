"""Reads the user's code around a backward call: where it is at, how outputs came about,
what changes in place, what is read.
"""

from __future__ import annotations

from gradviz.checks.call import BackwardCall, all_frozen
from gradviz.checks.collect.lines import users_frame
from gradviz.run.outputs import LiveOutputs
from gradviz.source.provenance import CodeLocation, provenance
from gradviz.source.search import changes, freezes, grad_reads
from gradviz.source.statements import body_around, body_of
from gradviz.variables.scanner import value_of


def location_of(live: LiveOutputs) -> CodeLocation | None:
    """The line that runs now, or the end of a script whose global variables are left."""
    frame = users_frame(live.frame)
    if frame is not None:
        body, line = body_of(frame.f_code), frame.f_lineno
    else:
        file = str(value_of("__file__", live.variables))
        body, line = body_around(file, 0), None
    return CodeLocation(body, line, live.variables) if body.statements else None


def read_code(call: BackwardCall, location: CodeLocation) -> None:
    """Note what the code says of a call."""
    body, call.grad_reads = location.body, grad_reads(location.body)
    if call.call is not None and location.line is not None:
        call.backward = body.line(location.line)

    call.changes = tuple(changes(body))
    if all_frozen(call.parameters):
        call.frozen_at = freezes(body.file)

    for root in call.graph.roots:
        if root.node is None or root.node in call.graph.leaf_of:
            call.provenances[root.name] = provenance(location, root.name)
