"""Reads the user's code around a backward call: where it is at, and how outputs came
about.
"""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.collect.lines import users_frame
from gradviz.run.outputs import LiveOutputs
from gradviz.source.provenance import provenance
from gradviz.source.search import CodeLocation
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
    """Note the code of a call, and where the roots without a graph come from, or all of
    them where a parameter is not used. Cuts that were seen count more.
    """
    call.body = location.body
    if call.call is not None and location.line is not None:
        call.backward = location.body.line(location.line)

    trained = [parameter for parameter in call.parameters if parameter.requires_grad]
    unused = any(parameter.node is None for parameter in trained)
    for root in call.graph.roots:
        if root.node is None or unused:
            read = provenance(location, root.name)
            seen = call.provenances.get(root.name, read)
            call.provenances[root.name] = read._replace(cuts=seen.cuts)
