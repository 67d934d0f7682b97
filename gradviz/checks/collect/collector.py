"""Turns live models, optimizers, tensors and code into the plain facts that health
checks look at.

One reader serves one run of the user's code, in which several backward calls may be
read one after the other. Reads no numbers, runs no hook, writes nothing. What to
conclude from the facts is none of its business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from gradviz.checks.collect.calls import Misuses, Observer
from gradviz.checks.collect.code import location_of, with_code
from gradviz.checks.collect.facts import (
    all_described,
    cut_roots,
    entered,
    homes_of,
    named_tensors,
)
from gradviz.checks.collect.held import cycles
from gradviz.checks.collect.leaves import LeafWatch
from gradviz.checks.collect.models import ModelReader, Reading
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.numbers import gradients_left, is_broken, loss_of
from gradviz.checks.collect.parameters import Replaced
from gradviz.checks.collect.recorder import RunRecorder
from gradviz.checks.collect.steps import Steps
from gradviz.checks.collect.warned import WarningWatch
from gradviz.checks.context import (
    CheckContext,
    Gradients,
    Model,
)
from gradviz.checks.poles import all_at_a_pole, all_zero, at_a_pole
from gradviz.checks.record import Interval
from gradviz.checks.words import Names
from gradviz.cuts.lines import CutWatch
from gradviz.cuts.seen import CutCalls
from gradviz.cuts.words import CutLines
from gradviz.gradients.values import values_of
from gradviz.graph import Graph, column
from gradviz.packages import UserCode
from gradviz.recording.reasons import Reasons, without_gradient
from gradviz.run.outputs import LiveOutputs
from gradviz.walker.isolation import isolated
from gradviz.walker.signals import signalled
from gradviz.walker.walk import Walked, capture

T = TypeVar("T")

_WORDS = {
    "optimizers": "the optimizers",
    "born": "the optimizers",
    "named_tensors": "the variables",
    "homes": "the modules",
    "cycles": "reference cycles",
    **dict.fromkeys(("values", "zero_weights", "poles"), "numbers"),
}
"""What parts of a context are called where they could not be read. All others are about
cuts.
"""


class Collector:
    """Reads the context of one run. `model` and `optimizer` as the user gave them;
    without, the variables are searched.

    `limits` are the thresholds that gradients which a call leaves are judged by;
    without them, they are not looked at.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        values: bool = False,
        limits: Gradients | None = None,
        cuts: bool = False,
    ) -> None:
        self._model, self._values = model, values
        self._limits = limits
        self.recorder = RunRecorder()
        self._leaf_watch = LeafWatch(self.recorder)
        self.steps = Steps(self._leaf_watch)
        code, self.misuses = UserCode(), Misuses()
        known = code.place, self.misuses
        self.place = code.place
        self.cuts, self.replaced = CutWatch(code), Replaced(*known)
        self.cuts.parts = {} if cuts else None
        self.observers: list[Observer] = [
            ModeWatch(*known),
            WarningWatch(*known),
            self.replaced,
        ]
        self.calls = CutCalls(self.cuts, self.cuts.next_step)
        self._reader = ModelReader(model, optimizer, self.recorder, self.replaced)
        self._call: int | None = None
        # of the call that was read last, until its backward has run
        self._parameters: Sequence[torch.Tensor] = ()
        self._leaves: dict[int, torch.Tensor] = {}  # likewise, by node
        # of the calls that were read, by identity
        self.leaf_names: dict[int, Names] = {}
        self._fresh: set[int] = set()  # those whose `.grad` will be of that call only
        # parts of calls that could not be read, and why
        self.dropped: dict[str, str] = {}

    def read(
        self,
        live: LiveOutputs,
        *,
        scaled: bool = False,
    ) -> CheckContext:
        """Everything that is known right now. Raises NotATensorError.

        `scaled`: a GradScaler multiplies losses, so gradients need not be finite.
        """
        with isolated():
            return self._read(live, scaled)

    def _read(self, live: LiveOutputs, scaled: bool) -> CheckContext:
        self._reader.recording, self._call = live.recording, live.call
        attribution = None
        if live.recording is not None:
            attribution = live.recording.attribution(self._model, live.variables)
        collected: list[tuple[Walked, CheckContext]] = []
        graph = capture(
            live.outputs,
            model=self._model,
            variables=live.variables,
            title=live.title,
            need_graph=False,
            attribution=attribution,
            inspect=lambda walked: collected.append(
                (walked, self._collect(walked, live, scaled))
            ),
        )
        (walked, context), drawn = collected[0], None
        if self.cuts.parts is not None:
            cuts = CutLines(watch=self.cuts, calls=self.calls)
            reasons = Reasons(live.variables, live.recording, cuts)
            absent = tuple(without_gradient(walked, reasons))
            drawn = self.cuts.joined(
                graph, walked, attribution, live.outputs, live.frame
            )
            drawn = replace(drawn, absent=absent)
            drawn = drawn.with_root_names(live.names)

        graph = graph.with_root_names(live.names)
        read = replace(context, graph=graph, drawn=drawn)
        code, steps = "the script's code", "what earlier steps left"
        location = self._part(code, lambda: location_of(live), None)
        if location is not None:
            read = self._part(code, partial(with_code, read, location), read)
        # that is a part of a step, and does not end one
        if live.call is not None and not live.create_graph:
            history = partial(
                self.steps.with_history, read, live, location, attribution
            )
            read = self._part(steps, history, read)
        return read

    def _part(
        self,
        name: str,
        read: Callable[[], T],
        without: T,
    ) -> T:
        """One part of what is known at a call. Without it where it cannot be read: the
        user's script is to run on.
        """
        try:
            return read()
        except Exception as error:
            if signalled(error):
                raise
            at = f" at call {self._call}" if self._call is not None else ""
            self.dropped.setdefault(
                name, f"could not be read{at}: {type(error).__name__}"
            )
            return without

    def afterwards(self, context: CheckContext, filled: bool | None) -> CheckContext:
        """The same context when backward has run, with what it left in `.grad`."""
        live, self._parameters = self._parameters, ()
        leaves, self._leaves = self._leaves, {}

        with isolated():
            self._leaf_watch.after(bool(filled))
            if not filled:
                return replace(context, intervals={})
            parameters = tuple(
                parameter._replace(
                    has_grad=tensor.grad is not None,
                    filled=not parameter.has_grad and tensor.grad is not None,
                )
                for parameter, tensor in zip(context.parameters, live)
            )

        if self._limits is not None and context.gradients is None:
            # gradients of the user's own classes may refuse anything
            with suppress(Exception):
                left = gradients_left(leaves, self._fresh)
                context = replace(context, gradients=self._limits._replace(leaves=left))

        return replace(context, after=True, parameters=parameters)

    # -- facts about tensors, modules and optimizers -----------------------------------

    def _collect(
        self,
        walked: Walked,
        live: LiveOutputs,
        scaled: bool,
    ) -> CheckContext:
        graph, reading = walked.graph, self._reader.reading(walked, live)
        coming, part = live.call is not None, self._part
        parameters = tuple(parameter for parameter, _ in reading.parameters)
        intervals: Mapping[int, Interval] = {}
        self._parameters, loss = (), loss_of(live.outputs) if coming else None
        if coming:
            begin = partial(self._begin, reading)
            intervals = part("gradients", begin, intervals)
            reached = partial(self._leaf_watch.reached, reading)
            part("the optimizers", reached, None)

        suspicious = self._is_suspicious(reading, loss, scaled)
        left = any(leaf.has_grad for leaf in graph.leaves)
        context = CheckContext(
            graph,
            intervals=intervals,
            ran=live.ran,
            scaled=scaled,
            call=live.call,
            after=not coming and (left or _flagged(graph, "freed")),
            grad_enabled=torch.is_grad_enabled(),
            models=tuple(
                Model(name, type(model).__name__, self._model is not None)
                for name, model in reading.models
            ),
            parameters=parameters,
            loss=loss,
        )
        leaves, nodes = walked.variables, walked.nodes
        parts: dict[str, Callable[[], Any]] = {
            "optimizers": lambda: tuple(self._reader.held(reading)),
            "named_tensors": lambda: tuple(named_tensors(reading)),
            "homes": lambda: homes_of(graph, parameters, reading.models),
            "born": lambda: self.recorder.births.lines(leaves),
            "cycles": lambda: tuple(cycles(walked)),
            "entered": lambda: dict(entered(self.cuts, walked)),
            "numbers": lambda: all_described(
                self.cuts, walked, self.cuts.this_step("number")
            ),
            "provenances": lambda: dict(cut_roots(self.cuts, walked, live)),
            "values": lambda: values_of(walked, live.outputs) if suspicious else None,
            "zero_weights": lambda: all_zero(leaves) if coming else (),
            "poles": lambda: all_at_a_pole(nodes) if suspicious else {},
        }
        known = {
            name: part(_WORDS.get(name, "cuts"), fact, getattr(context, name))
            for name, fact in parts.items()
        }
        return replace(context, **known)

    def _is_suspicious(
        self, reading: Reading, loss: float | None, scaled: bool
    ) -> bool:
        """Whether all numbers are to be read."""
        live = reading.live
        if self._values or is_broken(loss, live.variables, scaled):
            return True
        return (
            live.call is not None
            and not live.ran
            and not scaled
            and at_a_pole(reading.walked.nodes)
        )

    def _begin(self, reading: Reading) -> Mapping[int, Interval]:
        """A call is about to run: what was done with its leaves since the last one, by
        node.
        """
        leaves, leaf_of = reading.walked.variables, reading.walked.graph.leaf_of
        self._parameters = [tensor for _, tensor in reading.parameters]
        self._leaves = dict(leaves)
        self.leaf_names |= {id(leaf): leaf_of[i].names for i, leaf in leaves.items()}
        intervals: Mapping[int, Interval] = {}
        if self.steps.in_a_row:
            intervals = self._leaf_watch.intervals(leaves)

        self._fresh = {
            i
            for i, leaf in leaves.items()
            if reading.live.ran or _is_empty(leaf, intervals.get(i))
        }
        return intervals


def _is_empty(leaf: torch.Tensor, interval: Interval | None) -> bool:
    """Whether nothing is in the `.grad` of a leaf before a call, so that what is there
    afterwards is of that call.
    """
    empty = leaf.is_leaf and leaf.grad is None
    return empty or (interval is not None and interval.reset)


def _flagged(graph: Graph, flag: str) -> bool:
    return any(flag in flags for flags in column(graph.nodes, "flags"))
