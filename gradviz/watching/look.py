"""Looks at the graph of a few steps in a row: what `gradviz check` finds in them, their size, and what differs from step 1.

A look is open from the end of a step until it has read some backward calls. Modules and lines are noted, and optimizers are
recorded, only while one is open. Keeps no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradviz.checks.collect.collector import Collector
from gradviz.checks.collect.lines import users_frame
from gradviz.checks.context import CheckContext, Gradients
from gradviz.checks.finding import Findings
from gradviz.checks.registry import run
from gradviz.checks.watched import with_other_calls
from gradviz.comparison.diff import diff
from gradviz.graph import Graph, column
from gradviz.graph.amounts import overview
from gradviz.recording.record import Recording, record
from gradviz.run.engine import Afterwards, EngineCall
from gradviz.run.outputs import LiveOutputs
from gradviz.variables.scanner import namespaces
from gradviz.walker.private import CAN_RECORD, has_compiled
from gradviz.wording import count_text

READ, PATIENCE = 3, 16
"""Backward calls that a look reads, without the first one in later looks; and those after which it ends where nothing steps."""


@dataclass(frozen=True)
class StepLook:
    """What was seen of the graph at a step: of the largest one, where there are several losses.

    `nbytes` are saved for backward. `changes` says what differs from the first look, "" where nothing does. `findings` are those of
    `gradviz check` for the steps from this one on; its graphs are the ones that were read, the largest first.
    """

    step: int
    nodes: int
    nbytes: int
    changes: str
    structure: int  # equal where nodes and edges are
    sizes: int  # equal where shapes and bytes are, too
    findings: Findings

    @property
    def graph(self) -> Graph:
        """The graph, with the findings marked."""
        return self.findings.graph


class OpenLook:
    """A look while it is open."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        step: int,
        name: str,
        first: StepLook | None,
        span: int,
    ) -> None:
        self._model, self.step, self._title, self._first = model, step, f"{name}, step {step}", first
        self._optimizers = {f"optimizers[{i}]": optimizer for i, optimizer in enumerate(optimizers)}
        self._collector = Collector(
            model, optimizers[0] if len(optimizers) == 1 else None, limits=Gradients() if first is None else None
        )
        self._skip = int(first is not None and span > 1)
        self._contexts: list[CheckContext] = []
        self._undo = ExitStack()
        self._recording: Recording | None = None
        self._calls = 0

    def begin(self) -> None:
        """From now on the run is recorded."""
        if CAN_RECORD and not _is_compiled(self._model):
            self._recording = self._undo.enter_context(record())
        self._undo.enter_context(self._collector.recorder.watching())

    @property
    def is_over(self) -> bool:
        """Whether no optimizer has stepped for a while."""
        return self._calls >= PATIENCE

    def backward(self, call: EngineCall) -> Afterwards | None:
        """A backward call comes: read it, if it is one of the first."""
        self._calls += 1
        reading = self._skip < self._calls <= READ and not call.create_graph
        self._collector.recorder.backward(self._calls, call.frame, call.accumulates)
        self._collector.passed(self._calls, reading)
        if not reading:
            return None
        self._contexts.append(self._collector.read(self._live(call), scaled=self._collector.recorder.record.scaled))
        return self._afterwards

    def _live(self, call: EngineCall) -> LiveOutputs:
        frame = users_frame(call.frame) or call.frame
        variables: list[Mapping[str, Any]] = [*namespaces(frame), self._optimizers]
        several = len(call.outputs) > 1
        live = LiveOutputs(
            list(call.outputs) if several else call.outputs[0],
            variables,
            self._title,
            tuple(f"output[{i}]" for i in range(len(call.outputs))) if several else (),
            recording=self._recording,
            frame=call.frame,
            call=self._calls,
        )
        return replace(live, create_graph=call.create_graph, accumulates=call.accumulates)

    def _afterwards(self, filled: bool | None) -> None:
        with suppress(Exception):
            self._contexts[-1] = self._collector.afterwards(self._contexts[-1], filled)

    def close(self) -> None:
        """Nothing is recorded any more."""
        self._undo.close()
        self._recording = None

    def result(self) -> StepLook | None:
        """What was seen, compared with the graph of the first look. None where no backward call was read."""
        if not self._contexts:
            return None
        every = self._contexts
        every[-1] = replace(every[-1], record=self._collector.recorder.result(False))
        findings = run(with_other_calls(every, set(), {}, ()))
        read = sorted(zip(findings.graphs, findings.calls), key=lambda pair: -len(pair[0].nodes))  # of several losses
        findings = replace(findings, graphs=tuple(graph for graph, _ in read), calls=tuple(call for _, call in read))
        graph, first = findings.graphs[0], self._first
        structure, sizes = _structure(graph)
        changes = "" if first is None or first.sizes == sizes else _changes(first.findings.graphs[0], graph)
        return StepLook(self.step, len(graph.nodes), overview(graph).saved_bytes, changes, structure, sizes, findings)


def _changes(before: Graph, after: Graph) -> str:
    """What differs, in words."""
    difference = diff(before, after)
    counts = [
        (len(difference.added), "nodes added"),
        (len(difference.removed), "removed"),
        (len(difference.added_edges) + len(difference.removed_edges), "edges added or removed"),
        (len(difference.changed), "nodes changed in shape, bytes or options"),
    ]
    return ", ".join(f"{count_text(count)} {what}" for count, what in counts if count)


def _structure(graph: Graph) -> tuple[int, int]:
    """Numbers that are equal where nodes and edges are, and where shapes and bytes are, too. Of this process only."""
    structure = hash((tuple(column(graph.nodes, "op")), tuple(edge[:4] for edge in graph.edges)))
    nbytes = tuple(storage.nbytes for storage in graph.storages)
    return structure, hash((structure, tuple(map(tuple, column(graph.nodes, "outputs"))), nbytes))


def _is_compiled(model: torch.nn.Module) -> bool:
    """Whether recording modules may make `torch.compile` compile the model once more."""
    return has_compiled() or any(
        type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )
