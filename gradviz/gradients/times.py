"""Seconds of forward and backward by module, over a few steps of a script that is read
at its backward calls.

Forward is timed by the recording. Backward is replayed, function by function, as for
gradients.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import torch

from gradviz.errors import FormatError
from gradviz.gradients.live import (
    LiveGraph,
    compiled_functions,
    custom_functions,
    once,
    opened,
)
from gradviz.gradients.replay import replay
from gradviz.graph import Graph, Scope
from gradviz.graph.origins import ScopeTree
from gradviz.run.outputs import LiveOutputs
from gradviz.wording import plural

STEPS = 6
"""Backward calls that are timed. The first one warms up."""


def clock() -> float:
    """Seconds, when an accelerator in use has done its work."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(live: LiveOutputs) -> Graph:
    """The step that ends in these outputs; its scopes have their seconds.

    Raises FormatError where no modules were recorded, else what `open_graph` raises.
    """
    if live.recording is None:
        raise FormatError("there are no modules to time: nothing was recorded")

    live.recording.use_clock(clock)
    attribution = live.recording.attribution(None, live.variables, timed=True)
    walked = opened(live, attribution)
    graph, tree = walked.graph, ScopeTree(walked.graph)
    stops = (*compiled_functions(graph), *custom_functions(graph))
    seconds = Counter[int]()
    for node, took in _seconds(walked, stops).items():
        for scope in tree.around(graph.nodes[node].scope):
            seconds[scope] += took  # type: ignore[assignment]

    scopes = tuple(
        scope._replace(backward=seconds.get(i)) for i, scope in enumerate(graph.scopes)
    )
    note = f"backward of {plural(len(stops), 'custom or compiled function')}, and of what is behind, is not timed"
    notes = (*live.notes, *graph.notes, *([note] if stops else []))
    return replace(graph, scopes=scopes, notes=notes)


def _seconds(walked: LiveGraph, stops: Sequence[int]) -> dict[int, float]:
    """Of each backward function."""

    def run() -> dict[int, float]:
        seconds: dict[int, float] = {}
        before = clock()
        for step in replay(walked, stops=stops):
            now = clock()
            seconds[step.node], before = now - before, now
        return seconds

    return once(walked.graph, run)


def together(steps: Sequence[Graph]) -> Graph:
    """The first step's graph with the medians of all steps but the first."""
    # the first step also pays for caches, kernels and memory
    kept = steps[1:] or steps
    calls: dict[tuple[str, int], list[Scope]] = {}

    for step in kept:
        for scope in step.scopes:
            calls.setdefault((scope.path, scope.call), []).append(scope)

    graph = steps[0]
    scopes = []
    for scope in graph.scopes:
        alike = calls.get((scope.path, scope.call), [])
        forward = [call.forward for call in alike if call.forward is not None]
        backward = [call.backward for call in alike if call.backward is not None]
        scopes.append(
            scope._replace(forward=_median(forward), backward=_median(backward))
        )

    note = f"times are medians of {plural(len(kept), 'step')}" + (
        "" if len(steps) > 1 else ": the script has no other"
    )

    return replace(graph, scopes=tuple(scopes), notes=(*graph.notes, note))


def _median(seconds: Sequence[float]) -> float | None:
    return median(seconds) if seconds else None
