"""What holds the memory when a script runs out of it: the heaviest lines and modules.

Reads what the traceback keeps alive, and makes no tensor.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from traceback import walk_tb
from types import TracebackType
from typing import Any

import torch

from gradviz.errors import FormatError, reason_of
from gradviz.graph import Graph
from gradviz.memory.saved import By, saved
from gradviz.packages import is_foundation
from gradviz.recording.record import Recording, record
from gradviz.variables.scanner import Namespace, namespaces, scan
from gradviz.walker.private import wrappers_are_preserved
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import capture
from gradviz.wording import bytes_text

HEAVIEST = 3
_CPU = re.compile(r"DefaultCPUAllocator: (?:not enough memory|can't allocate memory)")


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception says so: torch's for an accelerator or the CPU, or Python's."""
    has_type = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return has_type or (
        isinstance(error, RuntimeError) and _CPU.search(str(error)) is not None
    )


def explanation(
    error: BaseException,
    recording: Recording | None,
    variables: Sequence[Namespace] = (),
) -> str:
    """The lines to print before the traceback; "" for another error."""
    if not out_of_memory(error):
        return ""
    try:
        return "\n".join(_lines(error, recording, variables)) + "\n"
    except Exception as problem:  # there may be no memory left for it
        return f"gradviz: out of memory, and what holds it could not be read: {reason_of(problem)}\n"


def _lines(
    error: BaseException, recording: Recording | None, variables: Sequence[Namespace]
) -> Iterator[str]:
    frames = [
        frame
        for frame, _ in walk_tb(error.__traceback__)
        if not is_foundation(frame.f_code.co_filename)
    ]
    spaces: list[Namespace] = [
        space for frame in reversed(frames) for space in namespaces(frame)
    ]
    spaces += variables
    if recording is not None:
        outputs = recording.last_outputs(error, spaces).outputs
    else:
        outputs = {}
    for found in scan(spaces):
        if found.kind == "tensor" and grad_fn_of(found.value) is not None:
            outputs.setdefault(found.name, found.value)
    if not outputs:
        yield "gradviz: out of memory; no tensor with a graph is alive, so nothing is saved for backward"
        return

    attribution = recording.attribution(None, spaces) if recording is not None else None
    tensors = list(outputs.values())
    graph = capture(tensors, variables=spaces, attribution=attribution).graph
    held = saved(graph, "op").total.held
    yield f"gradviz: out of memory; {bytes_text(held)} are saved for backward"
    for by in ("line", "module"):
        with suppress(FormatError):  # not recorded
            yield from _heaviest(graph, by)
    yield "  which modules to checkpoint: gradviz saved SCRIPT --budget SIZE"


def _heaviest(graph: Graph, by: By) -> Iterator[str]:
    # and with it rich, which most failures need not
    from gradviz.memory.table import alike_rows, row_name

    if by == "module":
        rows = alike_rows(saved(graph, by).rows)
    else:
        rows = saved(graph, by).rows
    yield f"  heaviest {by}s:"
    for row in rows[:HEAVIEST]:
        name, beside = row_name(row, by)
        yield f"    {bytes_text(row.held):>10}  {name.plain}  {beside.plain}".rstrip()


class ExplainOom(ExitStack):
    """What `explain_oom()` returns: it is at work until `close()`, or until the end of
    a `with`.
    """

    def __init__(self) -> None:
        super().__init__()
        # finds out by a thread, for which there may be no memory later
        wrappers_are_preserved()
        self._recording: Recording | None = self.enter_context(record())
        self._before = sys.excepthook
        sys.excepthook = self._show
        self.callback(self._restore)
        self.push(self._explain)

    def _explain(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        if error is not None and self._recording is not None:
            sys.stderr.write(explanation(error, self._recording))

    def _show(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        self._explain(kind, error, trace)
        self._before(kind, error, trace)

    def _restore(self) -> None:
        self._recording = None  # another hook may call this one later
        if sys.excepthook == self._show:
            sys.excepthook = self._before


def explain_oom() -> ExplainOom:
    """Say what holds the memory when the script runs out of it: printed before the
    traceback, to standard error.

    Call it once at the top of a script, or use it as a context manager around the
    training. It records module calls and lines, as `record` does. Nothing is printed
    for other errors.

    Notes
    -----
    Source: https://docs.pytorch.org/docs/stable/torch_cuda_memory.html

    Examples
    --------
    >>> with explain_oom():
    ...     total = torch.ones(3).sum()
    """
    return ExplainOom()
