"""Reads the row of a backward call from live models, optimizers, tensors and code.

One reader serves one run of the user's code, in which several backward calls may be
read one after the other. Reads no numbers, runs no hook, writes nothing. What to
conclude from the facts is none of its business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import FrameType

import torch

from gradviz.checks.call import BackwardCall, Gradients, Home, Model, NamedTensor
from gradviz.checks.collect.code import location_of, read_code
from gradviz.checks.collect.cuts import cut_roots, cuts_entering, described
from gradviz.checks.collect.held import cycles
from gradviz.checks.collect.leaves import LeafWatch
from gradviz.checks.collect.lines import Models, home
from gradviz.checks.collect.loop import LoopWatch
from gradviz.checks.collect.models import ModelReader, Reading
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.numbers import (
    all_zero,
    at_poles,
    gradients_left,
    is_broken,
    loss_of,
)
from gradviz.checks.collect.optimizers import OptimizerWatch
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.collect.steps import Steps
from gradviz.checks.run import Interval
from gradviz.cuts.words import CutLines
from gradviz.gradients.values import values_of
from gradviz.graph import Graph, column
from gradviz.packages import UserCode
from gradviz.recording.reasons import Reasons, without_gradient
from gradviz.run.outputs import LiveOutputs
from gradviz.walker.isolation import isolated
from gradviz.walker.signals import signalled
from gradviz.walker.taps import all_tapped
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture


class Collector:
    """Of one run. `model` and `optimizer` as the user gave them; without, the variables
    are searched.

    `cuts`: keep what was cut off, to draw it.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        values: bool = False,
        cuts: bool = False,
    ) -> None:
        self._model, self._values = model, values
        code = UserCode()
        self.recorder = Recorder(code)
        self.run = self.recorder.run
        self._modes = ModeWatch(self.recorder)
        self._loop = LoopWatch(self.recorder)
        self.optimizers = OptimizerWatch(self.recorder, self._modes)
        self._leaf_watch = LeafWatch(self.recorder, self.optimizers, self._modes)
        self.steps, self._in_a_row = Steps(self.run), True
        self.calls = CutLines(parts=cuts)
        self.cuts = self.calls.watch
        replaced = self.recorder.replaced
        self._reader = ModelReader(model, optimizer, self.optimizers, replaced)
        # of the call that was read last, until its backward has run
        self._parameters: Sequence[torch.Tensor] = ()
        self._leaves: dict[int, torch.Tensor] = {}  # likewise, by node
        self._fresh: set[int] = set()  # those whose `.grad` will be of that call only
        # parts of calls that could not be read, and why
        self.dropped: dict[str, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, the user's code may run, and is watched."""
        with ExitStack() as until:
            until.enter_context(self.optimizers.watching())
            for watch in (self._loop, self._modes):
                until.enter_context(all_tapped(watch.listeners()))
            until.enter_context(self.calls.watching())
            yield

    @contextmanager
    def _reading(
        self,
        part: str,
        call: int | None,
    ) -> Iterator[None]:
        """Reads one part of what is known at a call. It is left out where it cannot be
        read: the user's script is to run on.
        """
        try:
            yield
        except Exception as error:
            if signalled(error):
                raise
            number = f" at call {call}" if call is not None else ""
            reason = f"could not be read{number}: {type(error).__name__}"
            self.dropped.setdefault(part, reason)

    def read(self, live: LiveOutputs) -> BackwardCall:
        """Everything that is known right now. Raises NotATensorError."""
        with isolated():
            return self._read(live)

    def _read(self, live: LiveOutputs) -> BackwardCall:
        call = BackwardCall(
            Graph(),
            self.run,
            call=live.call,
            ran=live.ran,
            create_graph=live.create_graph,
        )
        attribution, walks = None, list[Walked]()
        if live.recording is not None:
            attribution = live.recording.attribution(self._model, live.variables)

        def inspect(walked: Walked) -> None:
            self._collect(call, walked, live)
            walks.append(walked)

        graph = capture(
            live.outputs,
            model=self._model,
            variables=live.variables,
            title=live.title,
            need_graph=False,
            attribution=attribution,
            inspect=inspect,
        )
        if self.cuts.draws:
            reasons = Reasons(live.variables, live.recording, self.calls)
            absent = tuple(without_gradient(walks[0], reasons))
            drawn = self.cuts.joined(walks[0], attribution, live.frame)
            call.drawn = replace(drawn, absent=absent).with_root_names(live.names)

        call.graph = graph.with_root_names(live.names)
        with self._reading("the script's code", live.call):
            location = location_of(live)
            if location is not None:
                read_code(call, location)
        if live.call is not None:
            with self._reading("what variables hold", live.call):
                self.steps.look(live.variables)
        return call

    def _collect(
        self,
        call: BackwardCall,
        walked: Walked,
        live: LiveOutputs,
    ) -> None:
        """Note the facts about tensors, modules and optimizers."""
        number, graph = live.call, walked.graph
        # only a run that is watched on tells of each call
        if number != self.recorder.number and number and live.frame is not None:
            self.backward(number, live.frame, live.accumulates, live.create_graph)
        call.ends, call.before = self.steps.ends[:], self.steps.before
        reading = self._reader.reading(walked, live)
        call.graph = graph
        call.grad_enabled = torch.is_grad_enabled()
        call.in_step = bool(self.recorder.stepping)
        call.parameters = tuple(parameter for parameter, _ in reading.parameters)
        models = list[Model]()
        for name, model in reading.models:
            training = vars(model).get("training", True)
            kind, certain = type(model).__name__, self._model is not None
            models.append(Model(name, kind, certain, training))
        call.models = tuple(models)

        self._parameters = ()
        if number is not None:
            call.loss = loss_of(live.outputs)
            with self._reading("gradients", number):
                call.intervals = self._begin(reading)
            with self._reading("the optimizers", number):
                self._leaf_watch.reached(reading)
        else:
            freed = any("freed" in flags for flags in column(graph.nodes, "flags"))
            call.after = freed or any(leaf.has_grad for leaf in graph.leaves)

        with self._reading("the optimizers", number):
            call.optimizers = tuple(self._reader.held(reading))
        with self._reading("the variables", number):
            call.named_tensors = tuple(_named_tensors(reading))
        with self._reading("the modules", number):
            call.homes = homes_of(graph, call, reading.models)
        with self._reading("reference cycles", number):
            call.cycles = tuple(cycles(walked))
        with self._reading("cuts", number):
            seen = self.cuts.this_step("number")
            call.numbers = described(self.cuts, walked, seen)
            call.entered = cuts_entering(self.cuts, walked)
            call.provenances = cut_roots(self.cuts, walked, live)
        with self._reading("numbers", number):
            self._read_numbers(call, walked, live)

    def _read_numbers(
        self, call: BackwardCall, walked: Walked, live: LiveOutputs
    ) -> None:
        """Zeros of weights; and everything, where NaN and Inf are near."""
        coming, scaled = live.call is not None, self.run.scaled
        if coming:
            call.zero_weights = all_zero(walked.variables)

        # reading every number costs time, so only where something looks wrong
        suspicious = self._values or is_broken(call.loss, live.variables, scaled)
        if coming and not suspicious and not live.ran and not scaled:
            suspicious = bool(at_poles(walked.nodes))
        if suspicious:
            call.values = values_of(walked, live.outputs)
            call.poles = at_poles(walked.nodes)

    def _begin(self, reading: Reading) -> Mapping[int, Interval]:
        """A call is about to run: what was done with its leaves since the last one, by
        node.
        """
        leaves = reading.walked.variables
        self._parameters = [tensor for _, tensor in reading.parameters]
        self._leaves = dict(leaves)
        intervals: Mapping[int, Interval] = {}
        if self._in_a_row:
            intervals = self._leaf_watch.intervals(leaves)

        self._fresh = set()
        for node, leaf in leaves.items():
            # what is there afterwards is of that call
            empty = leaf.is_leaf and leaf.grad is None
            reset = intervals.get(node, Interval()).reset
            if reading.live.ran or empty or reset:
                self._fresh.add(node)
        return intervals

    def backward(
        self,
        number: int,
        frame: FrameType,
        fills: bool = True,
        create_graph: bool = False,
        in_a_row: bool = True,
    ) -> None:
        """Backward is called for the `number`-th time; `fills`: gradients go to `.grad`;
        `in_a_row`: it is read, as all before.
        """
        self.recorder.backward(number, frame, fills)
        self._in_a_row = in_a_row
        # a call with create_graph is a part of a step, and does not end one
        if not create_graph:
            self.steps.backward()

    def afterwards(self, call: BackwardCall, filled: bool | None) -> None:
        """Backward has run: note what it left in `.grad`."""
        # let go of the user's tensors, whatever happens below
        tensors, self._parameters = self._parameters, ()
        leaves, self._leaves = self._leaves, {}

        with isolated():
            self._leaf_watch.after(bool(filled))
            if not filled:
                call.intervals = {}
                return

            call.after = True
            parameters = []
            for parameter, tensor in zip(call.parameters, tensors):
                has_grad = tensor.grad is not None
                new = has_grad and not parameter.has_grad
                parameters.append(parameter._replace(has_grad=has_grad, filled=new))
            call.parameters = tuple(parameters)

        if call.gradients is None:
            # gradients of the user's own classes may refuse anything
            with suppress(Exception):
                left = gradients_left(leaves, self._fresh)
                call.gradients = Gradients(left)


def homes_of(
    graph: Graph,
    call: BackwardCall,
    models: Models,
) -> dict[int, Home]:
    """Where parameters are kept that no module lists, by node."""
    listed = {parameter.node for parameter in call.parameters}
    homes: dict[int, Home] = {}
    for leaf in graph.leaves:
        if leaf.kind == "parameter" and leaf.node not in listed:
            place = home(leaf.names, models)
            if place is not None:
                homes[leaf.node] = place
    return homes


def _named_tensors(reading: Reading) -> Iterator[NamedTensor]:
    """The named tensors that are not parameters of a model."""
    walked, leaf_of = reading.walked, reading.leaf_of
    parameters = {id(tensor) for _, tensor in reading.parameters}

    for tensor, names in walked.names.named():
        if id(tensor) in parameters:
            continue
        try:
            function, leaf = grad_fn_of(tensor), tensor.is_leaf
            retains = tensor.retains_grad
        except RuntimeError:  # a view that torch refuses to follow
            continue

        node = leaf_of.get(id(tensor))
        if function is not None:
            node = walked.position_of.get(function)
        yield NamedTensor(
            names=names,
            node=node,
            storage=walked.storage_id(tensor),
            leaf=leaf,
            requires_grad=tensor.requires_grad,
            retains_grad=retains,
            aliases=walked.names.aliases(tensor),
        )
