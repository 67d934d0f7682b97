"""Reads the user's code around a backward call: where it is at, and how outputs came
about.
"""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.collect.lines import users_frame
from gradviz.run.outputs import LiveOutputs
from gradviz.source.provenance import CodeLocation, provenance
from gradviz.source.statements import body_around, body_of
from gradviz.variables.scanner import value_of


def read_code(call: BackwardCall, live: LiveOutputs) -> None:
    """Note the code of a call, or that at the end of a script whose global variables are
    left; and where the roots come from that have no graph, or that are leaves.
    """
    frame, line = users_frame(live.frame), None
    if frame is not None:
        body, line = body_of(frame.f_code), frame.f_lineno
    else:
        body = body_around(str(value_of("__file__", live.variables)), 0)
    if not body.statements:
        return

    call.body = body
    if call.call is not None and line is not None:
        call.backward = body.line(line)
    location = CodeLocation(body, line, live.variables)
    for root in call.graph.roots:
        if root.node is None or root.node in call.graph.leaf_of:
            call.provenances[root.name] = provenance(location, root.name)
