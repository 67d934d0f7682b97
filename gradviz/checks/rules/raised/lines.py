"""The line that has to change for a message of torch's, and that line written anew."""

from __future__ import annotations

import re

from gradviz.checks.call import BackwardCall
from gradviz.checks.rules.raised.messages import Message
from gradviz.checks.run import Raised
from gradviz.graph import SourceLine
from gradviz.source.code_line import as_leaf
from gradviz.source.feeding import lines_behind
from gradviz.source.search import matching


def line_to_change(
    message: Message, context: BackwardCall, raised: Raised
) -> tuple[SourceLine | None, str]:
    """The line that the message says how to write anew, and how: the one that failed, or
    else the nearest one which gives a value to what it reads. None where there is none.
    """
    source = raised.source
    if source is None or not message.fix_there:
        return None, ""

    lines = [source, *lines_behind(source)]
    if message.find == "cut":
        missing = set(raised.missing)
        lines = [cut.source for cut in context.cuts if missing.intersection(cut.behind)]
    for line in lines:
        rewritten = _rewritten(message, line)
        if rewritten not in ("", line.text):
            return line, rewritten

    # of several in the file, nothing says which one it was
    fitting = [line for line, _ in matching(source.file, message.replace)]
    if message.find or len(fitting) != 1:
        return None, ""
    return fitting[0], _rewritten(message, fitting[0])


def _rewritten(message: Message, line: SourceLine) -> str:
    if message.find == "leaf":
        return as_leaf(line)
    return re.sub(message.replace, message.by, line.text)
