"""What held the memory when a script ran out of it: the heaviest lines and modules, a plan, and what grew since the first step.

Reads what the traceback keeps alive, and makes no tensor.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from traceback import walk_tb
from types import TracebackType
from typing import Any

import torch

from gradviz.errors import FormatError, reason_of
from gradviz.graph import Graph
from gradviz.memory.checkpoint import checkpoint_plan, titles
from gradviz.memory.saved import By, saved
from gradviz.memory.table import alike_rows, row_name
from gradviz.packages import is_foundation
from gradviz.recording.record import Recording, record
from gradviz.variables.scanner import Namespace, namespaces, scan
from gradviz.walker.private import wrappers_are_preserved
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import capture
from gradviz.wording import bytes_text, count_text, few, plural

HEAVIEST = 3
_CPU = re.compile(r"DefaultCPUAllocator: (?:not enough memory|can't allocate memory)")
_WANTED = re.compile(r"[Tt]ried to allocate (\d[\d.]*) ?(bytes|[KMGT]iB)")


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception says so: torch's for an accelerator or the CPU, or Python's."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and _CPU.search(str(error)) is not None
    )


def explanation(
    error: BaseException, recording: Recording | None, variables: Sequence[Namespace] = (), first: object = None
) -> str:
    """The lines to print before the traceback; "" for another error. `first` is the graph of the first step, if it was read."""
    if not out_of_memory(error):
        return ""
    try:
        return "\n".join(_lines(error, recording, variables, first)) + "\n"
    except Exception as problem:  # there may be no memory left for it
        return f"gradviz: out of memory, and what holds it could not be read: {reason_of(problem)}\n"


def _lines(
    error: BaseException, recording: Recording | None, variables: Sequence[Namespace], first: object
) -> Iterator[str]:
    wanted = _WANTED.search(str(error))
    amount = f" while allocating {_amount(*wanted.groups())}" if wanted is not None else ""
    outputs, spaces = _outputs(error, recording, variables)
    if not outputs:
        yield f"gradviz: out of memory{amount}; no tensor with a graph is alive, so nothing is saved for backward"
        return
    attribution = recording.attribution(None, spaces) if recording is not None else None
    graph = capture(list(outputs.values()), variables=spaces, attribution=attribution)
    held = saved(graph, "op").total.held
    yield f"gradviz: out of memory{amount}; {bytes_text(held)} are saved for backward"
    if any(node.source is not None for node in graph.nodes):
        yield from _heaviest(graph, "line")
    if graph.scopes:
        yield from _heaviest(graph, "module")
        yield from _plan(graph, held // 2)
    if isinstance(first, Graph):
        yield from _growth(first, graph)


def _amount(number: str, unit: str) -> str:
    return bytes_text(int(number)) if unit == "bytes" else f"{number} {unit}"


def _outputs(
    error: BaseException, recording: Recording | None, variables: Sequence[Namespace]
) -> tuple[dict[str, torch.Tensor], list[Namespace]]:
    """The tensors with a graph that the failed code and its variables lead to, and those variables."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if not is_foundation(frame.f_code.co_filename)]
    spaces: list[Namespace] = [space for frame in reversed(frames) for space in namespaces(frame)]
    spaces += variables
    outputs = recording.last_outputs(error, spaces).outputs if recording is not None else {}
    for found in scan(spaces):
        if found.kind == "tensor" and grad_fn_of(found.value) is not None:
            outputs.setdefault(found.name, found.value)
    return outputs, spaces


def _heaviest(graph: Graph, by: By) -> Iterator[str]:
    rows = saved(graph, by).rows
    if by == "module":
        rows = alike_rows(rows)
    yield f"  heaviest {by}s:"
    for row in rows[:HEAVIEST]:
        name, beside = row_name(row, by)
        yield f"    {bytes_text(row.held):>10}  {name.plain}  {beside.plain}".rstrip()


def _plan(graph: Graph, budget: int) -> Iterator[str]:
    """How to save half as much."""
    try:
        plan = checkpoint_plan(graph, max(budget, 1))
    except FormatError:
        return
    if plan.steps:
        modules = few(titles(plan), HEAVIEST)
        now, then, ops = bytes_text(plan.before), bytes_text(plan.held), plural(plan.again, "op")
        yield f"  plan: wrap {modules} in torch.utils.checkpoint: {now} now, {then} with this plan, {ops} recomputed"


def _growth(first: Graph, now: Graph) -> Iterator[str]:
    """Lines that save more than in the first step."""
    by: By = "line" if any(node.source is not None for node in first.nodes) else "op"
    before = {row.name: row for row in saved(first, by).rows}
    grown = [(row.held - (before[row.name].held if row.name in before else 0), row) for row in saved(now, by).rows]
    grown = sorted((entry for entry in grown if entry[0] > 0), key=lambda entry: -entry[0])
    if grown:
        yield "  grew since step 1:"
    for more, row in grown[:HEAVIEST]:
        tensors = row.storages - (before[row.name].storages if row.name in before else 0)
        yield f"    {'+' + bytes_text(more):>10}  {row_name(row, by)[0].plain}  ({count_text(tensors)} more tensors)"


class ExplainOom:
    """What `explain_oom()` returns: it is at work until `close()`, or until the end of a `with`."""

    def __init__(self) -> None:
        wrappers_are_preserved()  # finds out by a thread, for which there may be no memory later
        self._recording = record()
        self._recording.__enter__()
        self._before, self._hook = sys.excepthook, self._show
        sys.excepthook = self._hook

    def __enter__(self) -> ExplainOom:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            sys.stderr.write(explanation(error, self._recording))
        self.close()

    def close(self) -> None:
        """Leave everything as it was."""
        if self._hook is not None:
            if sys.excepthook is self._hook:
                sys.excepthook = self._before
            self._hook = None  # type: ignore[assignment]
            self._recording.__exit__(None, None, None)

    def _show(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self._hook is not None:
            sys.stderr.write(explanation(error, self._recording))
        self._before(kind, error, trace)


def explain_oom() -> ExplainOom:
    """Say what holds the memory when the script runs out of it: printed before the traceback, to standard error.

    Call it once at the top of a script, or use it as a context manager around the training. It records module calls and lines, as
    `record` does. Nothing is printed for other errors.

    >>> with explain_oom():
    ...     total = torch.ones(3).sum()

    Source: https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
    """
    return ExplainOom()
