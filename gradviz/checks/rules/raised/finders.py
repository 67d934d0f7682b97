"""The lines that have to change for a message of torch's, and how they are written
anew: functions by the names that `.ini` files call them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator

from gradviz.checks.call import BackwardCall
from gradviz.checks.rules.raised.messages import Message
from gradviz.checks.run import Raised
from gradviz.checks.words import as_code, as_leaf, made_at
from gradviz.graph import SourceLine
from gradviz.source.code_line import assigned, calling, read
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


def _above(failure: UnderstoodFailure) -> Lines:
    """The line that failed, or one that gives a value to what it reads: the nearest
    that is to be written anew.
    """
    source = failure.raised.source
    candidates = [source] if source is not None else []
    candidates += lines_behind(source)
    return list(filter(failure.changes, candidates))[:1]


def _here(failure: UnderstoodFailure) -> Lines:
    source = failure.raised.source
    return [source] if source is not None and failure.changes(source) else []


def _passed(failure: UnderstoodFailure, *arguments: str) -> Lines:
    """The one line of the file that passes one of these arguments: `sparse=True`."""
    lines: list[SourceLine] = []
    if failure.raised.source is not None:
        for argument in arguments:
            keyword, _, value = argument.partition("=")
            lines += passes(failure.raised.source.file, keyword, value)
    return lines if len(lines) == 1 else []


def _inference(failure: UnderstoodFailure) -> Lines:
    """The one line of the file that switches inference mode on."""
    source = failure.raised.source
    lines = inference_modes(source.file) if source is not None else []
    return lines if len(lines) == 1 else []


def _leaf(failure: UnderstoodFailure) -> Iterator[SourceLine]:
    """The lines that compute something of a new leaf, of what the failed one reads."""
    graph = failure.context.graph
    names = set(read(failure.raised.source))
    lines = dict.fromkeys(
        made_at(graph, tensor.node)
        for tensor in failure.context.named_tensors
        if names.intersection(tensor.names)
    )
    for line in lines:
        if line is not None and as_leaf(line):
            yield line


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


def _reshaped(failure: UnderstoodFailure) -> Lines:
    """The custom Function whose gradient has as many elements as its input."""
    text = failure.raised.text.partition("invalid gradient")[2]
    shapes = re.findall(r"\[([\d, ]+)\]", text)
    sizes = [math.prod(map(int, shape.split(","))) for shape in shapes]
    same = len(sizes) == 2 and sizes[0] == sizes[1]
    return [failure.raised.custom] if same else []


def _of_refused(line: SourceLine | None, raised: Raised) -> Lines:
    return [line] if raised.missing else []


FINDERS: dict[str, Callable[..., Lines]] = {
    "above": _above,
    "backward": lambda failure: [failure.context.backward],
    "custom": lambda failure: [failure.raised.custom],
    "cut": _cut,
    "here": _here,
    "inference": _inference,
    "leaf": _leaf,
    "made": lambda failure: _of_refused(failure.raised.made, failure.raised),
    "passes": _passed,
    "refused": lambda failure: _of_refused(failure.raised.source, failure.raised),
    "reshaped": _reshaped,
    "whole": _whole,
}

# -- how they are written anew ---------------------------------------------------------

_PARTS = re.compile(r"part of (.+): (torch\.cat.+)")
_MODULE = re.compile(r"'?(\w+)(?:' object has no|\.__init__)")
_NUMBERS = [
    "item",
    "mean",
    "sum",
    "detach",
    "float",
    "norm",
    "max",
    "min",
    "cpu",
    "numpy",
    "tolist",
    "size",
    "dim",
]


def _with_parts(raised: Raised, line: SourceLine) -> str:
    """A line that reads a tensor as a whole, written so that it reads its parts."""
    match = _PARTS.search(raised.within)
    if match is None or match[1] not in read(line):
        return ""
    return re.sub(rf"(?<![\w.]){re.escape(match[1])}(?!\w)", match[2], line.text)


def _with_call(raised: Raised, line: SourceLine) -> str:
    """A line that names a method or makes a module, with a call of it."""
    kind = _MODULE.search(raised.within) or _MODULE.search(raised.text)
    return calling(line, *([kind[1]] if kind is not None else _NUMBERS))


WRITERS: dict[str, Callable[[Raised, SourceLine], str]] = {
    "call": _with_call,
    "leaf": lambda raised, line: as_leaf(line),
    "parts": _with_parts,
}
