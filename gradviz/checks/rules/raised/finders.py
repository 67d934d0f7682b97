"""The lines that have to change for a message of torch's, and how they are written
anew: functions by the names that `.ini` files call them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.rules.raised.messages import Message
from gradviz.checks.run import Raised
from gradviz.checks.words import as_code, made_at
from gradviz.graph import SourceLine
from gradviz.source.code_line import as_leaf, read
from gradviz.source.feeding import lines_behind
from gradviz.source.search import matching

Lines = Iterable[SourceLine | None]


class UnderstoodFailure(NamedTuple):
    """A script that failed with a message that is understood."""

    message: Message
    context: BackwardCall
    raised: Raised

    @property
    def code(self) -> str:
        """The tensor that was refused, as the code spells it."""
        return as_code(next(iter(self.raised.missing), "x"))

    def lines(self) -> list[SourceLine]:
        """The lines that have to change, where they are known."""
        find = FINDERS.get(self.message.find)
        lines = find(self) if find is not None else ()
        return [line for line in lines if line is not None]

    def rewritten(self, line: SourceLine) -> str:
        """Such a line as it should be; "" where nothing says that."""
        if self.message.find == "leaf":
            return as_leaf(line)
        if not self.message.replace:
            return ""
        replacement = self.message.by.replace("{code}", self.code)
        return re.sub(self.message.replace, replacement, line.text)


def _above(failure: UnderstoodFailure) -> Lines:
    """The line that failed, or else the nearest one which gives a value to what it
    reads, that is to be written anew.
    """
    source = failure.raised.source
    lines = [source, *lines_behind(source)] if source is not None else []
    return [line for line in lines if failure.rewritten(line) != line.text][:1]


def _file(failure: UnderstoodFailure) -> Lines:
    """The one line of the file that is to be written anew."""
    source = failure.raised.source
    file = source.file if source is not None else ""
    lines = [line for line, _ in matching(file, failure.message.replace)]
    # of several, nothing says which one it was
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


def _cut(failure: UnderstoodFailure) -> Lines:
    """The line that cut off the tensor that was refused."""
    missing = set(failure.raised.missing)
    for cut in failure.context.cuts:
        if missing.intersection((*cut.leaf, *cut.behind)):
            return [cut.source]
    return []


FINDERS: dict[str, Callable[[UnderstoodFailure], Lines]] = {
    "above": _above,
    "backward": lambda failure: [failure.context.backward],
    "custom": lambda failure: [failure.raised.custom],
    "cut": _cut,
    "file": _file,
    "leaf": _leaf,
    "made": lambda failure: [failure.raised.made],
    "refused": lambda failure: (
        [failure.raised.source] if failure.raised.missing else []
    ),
}
