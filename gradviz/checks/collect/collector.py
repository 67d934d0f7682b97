"""Reads the row of a backward call from live models, optimizers, tensors and code.

One reader serves one run of the user's code, in which several backward calls may be
read one after the other. What numbers are looked at is in `numbers`. Runs no hook, and
changes nothing of the user's. Concludes nothing.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from gradviz.armour.isolation import isolated
from gradviz.armour.taps import all_tapped
from gradviz.checks.call import BackwardCall, Gradients, Model, NamedTensor, Parameter
from gradviz.checks.collect.held import cycles, made_in_place
from gradviz.checks.collect.ledger import Ledger
from gradviz.checks.collect.loop import LoopWatch
from gradviz.checks.collect.misuse import note_misuse
from gradviz.checks.collect.models import Reading, homes_of, read_objects
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.numbers import (
    at_poles,
    dead,
    gradients_left,
    is_broken,
    loss_of,
)
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.checks.words import all_names
from gradviz.cuts.answers import Answers
from gradviz.gradients.values import values_of
from gradviz.graph import Graph
from gradviz.graph.collector import paused
from gradviz.packages import users_frame
from gradviz.run.outputs import LiveOutputs
from gradviz.source.cut import Cut
from gradviz.source.statements import body_around, body_of
from gradviz.variables.objects import reading_once
from gradviz.variables.scanner import value_of
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture


class Collector:
    """Of one run. `model` and `optimizer` as the user gave them; without, the variables
    are searched. `cuts`: note what was cut off, to draw it.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        values: bool = False,
        cuts: bool = False,
    ) -> None:
        self._given, self._values, self._draws = (model, optimizer), values, cuts
        self.recorder = Recorder()
        self.run = self.recorder.run
        self._modes = ModeWatch(self.recorder)
        self._ledger = Ledger(self.recorder, self._modes)
        # of the call that was read last, until its backward has run; leaves by node
        self._parameters: Sequence[tuple[Parameter, torch.Tensor]] = ()
        self._leaves: dict[int, torch.Tensor] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, the user's code may run, and is watched."""
        loop = LoopWatch(self.recorder).listeners()
        with self._ledger.watching(), all_tapped((*loop, *self._modes.listeners())):
            yield

    def read(self, live: LiveOutputs) -> BackwardCall:
        """Everything that is known right now. Raises NotATensorError."""
        with paused(), isolated(), reading_once():
            return self._read(live)

    def _read(self, live: LiveOutputs) -> BackwardCall:
        call = BackwardCall(
            Graph(),
            self.run,
            call=live.call,
            ran=live.ran,
            create_graph=live.create_graph,
        )
        (model, _), attribution = self._given, None
        if live.recording is not None:
            attribution = live.recording.attribution(model, live.variables)

        walked = capture(
            live.outputs,
            model=model,
            variables=live.variables,
            title=live.title,
            need_graph=False,
            attribution=attribution,
        )
        reading = read_objects(walked, live, *self._given, self.recorder.replaced)
        self._collect(call, reading)
        answers = Answers(live, walked, min(call.since, self.recorder.turn))
        with self.recorder.reading("cuts"):
            self._answer(call, reading, answers)
        if self._draws:
            call.drawn = answers.marked(cuts=True).with_root_names(live.names)
        with self.recorder.reading("the script's code"):
            read_code(call, live)
        if live.call is not None:
            with self.recorder.reading("what variables hold"):
                self.recorder.look(live.variables)
        return call

    def _collect(self, call: BackwardCall, reading: Reading) -> None:
        """Note the facts about tensors, modules and optimizers."""
        walked, live, recorder = reading.walked, reading.live, self.recorder
        number = live.call
        # only a run that is watched on tells of each call
        if number is not None and number != recorder.number:
            recorder.backward(number, live, loss_of([live.outputs]))
        call.ends, call.before = recorder.ends[:], recorder.before
        call.graph = walked.graph.with_root_names(live.names)
        wanted = set(map(id, live.inputs))
        leaves = reading.leaf_of.items()
        call.asked = frozenset(node for key, node in leaves if key in wanted)
        self.run.used.update(all_names(call.graph.leaves))
        call.grad_enabled = torch.is_grad_enabled()
        call.parameters = tuple(parameter for parameter, _ in reading.parameters)
        certain = self._given[0] is not None
        call.models = tuple(
            Model(
                name, type(model).__name__, certain, vars(model).get("training", True)
            )
            for name, model in reading.models
        )

        if number is not None:
            with recorder.reading("gradients"):
                variables = walked.variables.items()
                self._leaves = {node: leaf for node, leaf in variables if leaf.is_leaf}
                self._parameters = reading.parameters
                call.intervals = self._ledger.intervals(self._leaves, live.ran)
        with recorder.reading("the optimizers"):
            if number is not None:
                self._reached(reading)
            call.optimizers = tuple(self._ledger.held(reading))
        with recorder.reading("the variables"):
            call.named_tensors = tuple(_named_tensors(reading))
        with recorder.reading("the modules"):
            listed = {parameter.node for parameter in call.parameters}
            others = [leaf for leaf in call.graph.leaves if leaf.node not in listed]
            call.homes = homes_of(others, reading.models, live.variables)
        with recorder.reading("reference cycles"):
            call.cycles = cycles(walked)
            call.in_place = made_in_place(call.graph)
        with recorder.reading("numbers"):
            self._read_numbers(call, walked, live)

    def _reached(self, reading: Reading) -> None:
        """A backward call is about to run through these leaves."""
        self._ledger.reached(reading)
        fills, leaves = reading.live.accumulates, reading.walked.variables.values()
        self.recorder.reaches(map(id, leaves) if fills else ())
        note_misuse(self.recorder, reading)
        models = reading.models
        self._modes.models = {name: weakref.ref(model) for name, model in models}

    def _answer(self, call: BackwardCall, reading: Reading, answers: Answers) -> None:
        """Note what was cut off, and why leaves get no gradient."""
        entered: dict[int, list[Cut]] = defaultdict(list)
        for found in answers.cuts:
            for node in found.nodes:
                entered[node].append(found.cut)
        call.entered = {node: tuple(cuts) for node, cuts in entered.items()}
        self.run.trained_with |= answers.lines()
        for source, *about in answers.without_effect():
            self.recorder.note(Kind.NO_EFFECT, source, *about)
        for source, *about in answers.unseen_changes():
            self.recorder.note(Kind.UNSEEN, source, *about)
        for source, *about in answers.drawn_twice():
            self.recorder.note(Kind.DRAWN, source, *about)
        off = answers.switched_off()
        before = [found.cut for found in answers.cuts_of_outputs]
        call.cuts_before = (off,) if off is not None else tuple(before)
        call.origin = answers.origin()

        missing = [(tensor, names[0]) for tensor, names in answers.missing()]
        # the checks may have other names for parameters
        for parameter, tensor in reading.parameters:
            if parameter.node is None:
                missing.append((tensor, parameter.names[0]))
        call.answers = {name: answers.answer(tensor, name) for tensor, name in missing}

    def _read_numbers(
        self, call: BackwardCall, walked: Walked, live: LiveOutputs
    ) -> None:
        """Everything, where NaN and Inf are near."""
        if live.call is None and not self._values:
            return
        scaled, call.poles = self.run.scaled, at_poles(walked.nodes)
        if self.recorder.zeros:
            call.dead = dead(walked.nodes)
        near = call.poles and not (live.ran or scaled)
        # reading every number costs time, so only where something looks wrong
        if self._values or near or is_broken(call.loss, scaled):
            call.values = values_of(walked, live.outputs)

    def afterwards(self, call: BackwardCall, filled: bool | None) -> None:
        """Backward has run: note what it left in `.grad`."""
        # let go of the user's tensors, whatever happens below
        before, self._parameters = self._parameters, ()
        leaves, self._leaves = self._leaves, {}
        if not filled:
            call.intervals = {}
            return

        self._ledger.after(leaves, call.intervals)
        call.after = True
        parameters = []
        for parameter, tensor in before:
            has_grad = tensor.grad is not None
            # a custom Function may run a module again in its backward
            if has_grad and not parameter.has_grad:
                self.run.used.update(parameter.names)
            parameters.append(parameter._replace(has_grad=has_grad))
        call.parameters = tuple(parameters)

        if call.gradients is None:
            with self.recorder.reading("gradients"):
                call.gradients = Gradients(gradients_left(leaves))
        self.recorder.left(call.leaf_gradients, leaves)


def read_code(call: BackwardCall, live: LiveOutputs) -> None:
    """Note the code of a call, or that at the end of a script whose global variables are
    left.
    """
    frame = users_frame(live.frame)
    if frame is not None:
        call.body = body_of(frame.f_code)
        if call.call is not None:
            call.backward = call.body.line(frame.f_lineno)
    else:
        call.body = body_around(str(value_of("__file__", live.variables)), 0)


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
            retains_grad=retains,
            aliases=walked.names.aliases(tensor),
        )
