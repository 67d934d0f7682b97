"""The lines that have to change for a message of torch's, and how they are written
anew: functions by the names that `.ini` files call them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gradviz.checks.call import BackwardCall
from gradviz.checks.rules.raised.messages import Message
from gradviz.checks.run import Raised
from gradviz.checks.words import as_code, made_at
from gradviz.graph import SourceLine
from gradviz.source.code_line import as_leaf, assigned, read
from gradviz.source.search import inference_modes, lines_behind, passes

Lines = Iterable[SourceLine | None]


class UnderstoodFailure:
    """A script that failed with a message that is understood."""

    def __init__(self, message: Message, context: BackwardCall, raised: Raised) -> None:
        self.message, self.context, self.raised = message, context, raised

    @property
    def code(self) -> str:
        """The tensor that was refused, as the code spells it."""
        return as_code(next(iter(self.raised.missing), "x"))

    def lines(self) -> list[SourceLine]:
        """The lines that have to change, where they are known."""
        name, *arguments = self.message.find.split() or [""]
        if not name:
            return []
        found = FINDERS[name](self, *arguments)
        return [line for line in found if line is not None]

    def rewritten(self, line: SourceLine) -> str:
        """Such a line as it should be; "" where nothing says that."""
        message = self.message
        if message.write:
            return WRITERS[message.write](self.raised, line)
        if not message.replace:
            return ""
        replacement = message.by.replace("{code}", self.code)
        return re.sub(message.replace, replacement, line.text)

    def changes(self, line: SourceLine) -> bool:
        return self.rewritten(line) not in ("", line.text)


# -- which lines -----------------------------------------------------------------------


def _nearest(failure: UnderstoodFailure, candidates: Lines) -> Lines:
    """The first of these lines that is to be written anew."""
    lines = (line for line in candidates if line is not None)
    return list(filter(failure.changes, lines))[:1]


def _passed(failure: UnderstoodFailure, *arguments: str) -> Lines:
    """The one line of the file that passes one of these arguments: `sparse=True`."""
    source, lines = failure.raised.source, list[SourceLine]()
    for argument in arguments if source is not None else ():
        lines += passes(source.file if source is not None else "", argument)
    # of several, nothing says which one it was
    return lines if len(lines) == 1 else []


def _inference(failure: UnderstoodFailure) -> Lines:
    """The one line of the file that switches inference mode on."""
    source = failure.raised.source
    lines = inference_modes(source.file) if source is not None else []
    return lines if len(lines) == 1 else []


def _leaf(failure: UnderstoodFailure) -> Lines:
    """The lines that compute something of a new leaf, of what the failed one reads."""
    graph, names = failure.context.graph, set(read(failure.raised.source))
    lines = dict[SourceLine | None, None]()
    for tensor in failure.context.named_tensors:
        line = made_at(graph, tensor.node)
        if names.intersection(tensor.names) and as_leaf(line):
            lines[line] = None
    return lines


def _whole(failure: UnderstoodFailure) -> Lines:
    """The line after which a tensor and its parts go different ways."""
    raised, parts_made = failure.raised, 0
    found: list[SourceLine] = []
    for line in reversed(lines_behind(raised.source)):
        if not parts_made and set(raised.missing).intersection(assigned(line)):
            parts_made = line.line
        elif parts_made and failure.changes(line):
            found.append(line)
    return found[:1]


def _cut(failure: UnderstoodFailure) -> Lines:
    """The line that cut off the tensor that was refused."""
    missing = set(failure.raised.missing)
    for cut in failure.context.cuts:
        if missing.intersection((*cut.leaf, *cut.behind)):
            return [cut.source]
    return []


FINDERS: dict[str, Callable[..., Lines]] = {
    # the line that failed, or one that gives a value to what it reads
    "above": lambda failure: _nearest(
        failure, [failure.raised.source, *lines_behind(failure.raised.source)]
    ),
    "backward": lambda failure: [failure.context.backward],
    "custom": lambda failure: [failure.raised.custom],
    "cut": _cut,
    "here": lambda failure: _nearest(failure, [failure.raised.source]),
    "inference": _inference,
    "leaf": _leaf,
    "made": lambda failure: [failure.raised.made] if failure.raised.missing else [],
    "passes": _passed,
    "refused": lambda failure: (
        [failure.raised.source] if failure.raised.missing else []
    ),
    "whole": _whole,
}

# -- how they are written anew ---------------------------------------------------------

_PARTS = re.compile(r"part of (.+): (torch\.cat.+)")


def _with_parts(raised: Raised, line: SourceLine) -> str:
    """A line that reads a tensor as a whole, written so that it reads its parts."""
    match = _PARTS.search(raised.within)
    if match is None or match[1] not in read(line):
        return ""
    return re.sub(rf"(?<![\w.]){re.escape(match[1])}(?!\w)", match[2], line.text)


WRITERS: dict[str, Callable[[Raised, SourceLine], str]] = {
    "leaf": lambda raised, line: as_leaf(line),
    "parts": _with_parts,
}
