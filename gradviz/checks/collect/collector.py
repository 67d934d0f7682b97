"""Turns live models, optimizers, tensors and code into the plain facts that health
checks look at.

One reader serves one run of the user's code, in which several backward calls may be
read one after the other. Reads no numbers, runs no hook, writes nothing. What to
conclude from the facts is none of its business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from gradviz.checks.collect.calls import Misuses, Observer
from gradviz.checks.collect.code import location_of, with_code
from gradviz.checks.collect.held import carried, cycles
from gradviz.checks.collect.lines import Models, Variables, described, home
from gradviz.checks.collect.models import ModelReader, Reading
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.numbers import gradients_left, is_broken, loss_of
from gradviz.checks.collect.parameters import Replaced
from gradviz.checks.collect.recorder import RunRecorder
from gradviz.checks.collect.rows import RowKeeper
from gradviz.checks.collect.warned import WarningWatch
from gradviz.checks.context import (
    CheckContext,
    Earlier,
    Gradients,
    Home,
    NamedTensor,
    Parameter,
)
from gradviz.checks.flow import all_at_a_pole, all_zero, at_a_pole
from gradviz.checks.record import Intervals
from gradviz.checks.words import Names, all_names
from gradviz.cuts.behind import lines_before
from gradviz.cuts.lines import CutWatch, SeenCut
from gradviz.cuts.parts import takers
from gradviz.cuts.seen import CutCalls
from gradviz.cuts.words import CutLines
from gradviz.gradients.values import values_of
from gradviz.graph import Graph, column
from gradviz.packages import UserCode
from gradviz.recording.reasons import Reasons, without_gradient
from gradviz.recording.session import running
from gradviz.run.outputs import LiveOutputs
from gradviz.source.cut import Cut
from gradviz.source.provenance import Provenance
from gradviz.source.search import (
    CodeLocation,
    addition_to,
    additions,
)
from gradviz.walker.description import Attribution
from gradviz.walker.isolation import isolated
from gradviz.walker.private import LAST, peek_sequence
from gradviz.walker.signals import signalled
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture

T = TypeVar("T")

KEPT = 100
"""Earlier calls that are remembered."""

REMEMBERED = 1000
"""Backward calls for which lines and modules of nodes are known, at least."""

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
        self._rows = RowKeeper(self.recorder)
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
        self._earlier = deque[Earlier](maxlen=KEPT)
        self._call: int | None = None
        # of the call that was read last, until its backward has run
        self._parameters: Sequence[torch.Tensor] = ()
        self._leaves: dict[int, torch.Tensor] = {}  # likewise, by node
        # of the calls that were read, by identity
        self.leaf_names: dict[int, Names] = {}
        self._fresh: set[int] = set()  # those whose `.grad` will be of that call only
        self._forgotten = 0  # the sequence number below which nodes are forgotten next
        # the last call, and the sequence number at it, if it is not read
        self._unread: tuple[int, int] | None = None
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
        if live.recording is not None:
            attribution = live.recording.attribution(self._model, live.variables)
        else:
            attribution = None
        collected: list[tuple[Walked, CheckContext]] = []
        parts = self.cuts.parts_of(attribution, live.outputs, live.frame)

        def inspect(walked: Walked) -> None:
            collected.append((walked, self._collect(walked, live, scaled)))

        graph = capture(
            live.outputs,
            model=self._model,
            variables=live.variables,
            title=live.title,
            need_graph=False,
            attribution=parts or attribution,
            inspect=inspect,
        )
        (walked, context), drawn = collected[0], None
        if parts is not None:
            reasons = Reasons(
                live.variables,
                live.recording,
                CutLines(watch=self.cuts, calls=self.calls),
            )
            absent = tuple(without_gradient(walked, reasons))
            drawn = replace(
                parts.joined(graph, walked.names), absent=absent
            ).with_root_names(live.names)
        read = replace(
            context,
            graph=graph.with_root_names(live.names),
            drawn=drawn,
        )
        location = self._part("the script's code", lambda: location_of(live), None)
        if location is not None:
            read = self._part(
                "the script's code", partial(with_code, read, location), read
            )
        # that is a part of a step, and does not end one
        if live.call is not None and not live.create_graph:
            history = partial(
                self._with_history,
                read,
                live.call,
                live.variables,
                location,
                attribution,
            )
            read = self._part("what earlier steps left", history, read)
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

    def passed(self, number: int, reading: bool) -> None:
        """Backward call `number` comes, and may not be read. Told of every call, later
        calls know which ran before them.
        """
        if self._unread is not None:
            call, boundary = self._unread
            step = self._earlier[-1].step + 1 if self._earlier else 0
            self._earlier.append(Earlier(call, "", boundary, (), (), step))

        self._unread = None if reading else (number, peek_sequence())
        session = running() if number % REMEMBERED == 0 else None
        if session is not None:
            session.event_log().forget(self._forgotten)
            self._forgotten = peek_sequence()

    def afterwards(self, context: CheckContext, filled: bool | None) -> CheckContext:
        """The same context when backward has run, with what it left in `.grad`."""
        live, self._parameters = self._parameters, ()
        leaves, self._leaves = self._leaves, {}

        with isolated():
            self.recorder.between.after(bool(filled))
            self._rows.after(bool(filled))
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
        graph, reading, coming = (
            walked.graph,
            self._reader.reading(walked, live),
            live.call is not None,
        )
        if reading.parameters:
            parameters, tensors = zip(*reading.parameters)
        else:
            parameters, tensors = ((), ())

        self._parameters, loss = (), loss_of(live.outputs) if coming else None
        intervals: Intervals = {}
        if coming:
            intervals = self._part(
                "gradients", lambda: self._begin(walked, live, tensors), intervals
            )
            self._part("the optimizers", lambda: self._rows.reached(reading), None)

        suspicious = self._is_suspicious(reading, loss, scaled)
        context = CheckContext(
            graph,
            intervals=intervals,
            ran=live.ran,
            scaled=scaled,
            call=live.call,
            after=not coming
            and (
                _flagged(graph, "freed") or any(leaf.has_grad for leaf in graph.leaves)
            ),
            grad_enabled=torch.is_grad_enabled(),
            models=tuple(
                self._reader.facts(name, model) for name, model in reading.models
            ),
            parameters=parameters,
            loss=loss,
        )
        parts: dict[str, Callable[[], Any]] = {
            "optimizers": lambda: tuple(self._reader.held(reading)),
            "named_tensors": lambda: tuple(_named_tensors(reading)),
            "homes": lambda: _homes(graph, parameters, reading.models),
            "born": lambda: {
                node: birth[0]
                for node, leaf in walked.variables.items()
                if (birth := self.recorder.birth(leaf)) is not None
            },
            "cycles": lambda: tuple(cycles(walked)),
            "entered": lambda: dict(self._entered(walked)),
            "numbers": lambda: self._described(
                walked,
                self.cuts.this_step("number"),
            ),
            "provenances": lambda: dict(self._cut_roots(walked, live)),
            "values": lambda: values_of(walked, live.outputs) if suspicious else None,
            "zero_weights": lambda: all_zero(walked.variables) if coming else (),
            "poles": lambda: all_at_a_pole(walked.nodes) if suspicious else {},
        }
        known = {
            name: self._part(
                _WORDS.get(name, "cuts"),
                fact,
                getattr(context, name),
            )
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

    def _begin(
        self, walked: Walked, live: LiveOutputs, tensors: Sequence[torch.Tensor]
    ) -> Intervals:
        """A call is about to run: what was done with its leaves since the last one, by
        node.
        """
        self._parameters, self._leaves = tensors, dict(walked.variables)
        self.leaf_names |= {
            id(leaf): walked.graph.leaf_of[i].names
            for i, leaf in walked.variables.items()
        }

        if self._unread is None:
            intervals = self.recorder.between.before(walked.variables)
        else:
            intervals = {}

        self._fresh = {
            i
            for i, leaf in walked.variables.items()
            if live.ran or _is_empty(leaf, intervals.get(i))
        }

        return intervals

    # -- what was cut off --------------------------------------------------------------

    def _entered(
        self,
        walked: Walked,
    ) -> Iterator[tuple[int, tuple[Cut, ...]]]:
        """The nodes of the graph that take in what was cut off."""
        nodes = walked.graph.nodes
        numbers = [
            number if number is not None else LAST
            for number in column(nodes, "sequence")
        ]
        others = {
            i: count for i, count in enumerate(column(nodes, "none_inputs")) if count
        }
        taken = takers(numbers, walked.graph.edges, others)
        entered: dict[int, list[SeenCut]] = {}
        for where, places in self.cuts.entering(taken).items():
            for node in places:
                entered.setdefault(node, []).append(where)

        for i, leaf in walked.variables.items():
            if given := self.cuts.given_to(leaf):
                entered[i] = given

        for node, events in entered.items():
            yield node, self._described(walked, events)

    def _cut_roots(
        self, walked: Walked, live: LiveOutputs
    ) -> Iterator[tuple[str, Provenance]]:
        """The outputs that were cut off themselves, as lines before the call have cut
        in this step.
        """
        leaves, names = (
            walked.variables,
            live.names or tuple(root.name for root in walked.graph.roots),
        )
        lost = [
            name
            for name, root in zip(names, walked.graph.roots)
            if root.node is None or root.node in leaves
        ]

        if lost:
            cuts = self._described(
                walked,
                self.cuts.on(lines_before(live.frame)),
            )
        else:
            cuts = ()

        off = self.cuts.off if not torch.is_grad_enabled() else None
        if off is not None:
            cuts = (Cut("no_grad", off, "set_grad_enabled", via=(off,)),)

        for name in lost if cuts else ():
            yield name, Provenance(cuts)

    def _described(
        self,
        walked: Walked,
        cuts: Iterable[SeenCut],
    ) -> tuple[Cut, ...]:
        return tuple(described(self.cuts.cut(cut, walked.names.leaf)) for cut in cuts)

    # -- from call to call -------------------------------------------------------------

    def _with_history(
        self,
        context: CheckContext,
        call: int,
        variables: Variables,
        location: CodeLocation | None,
        attribution: Attribution | None,
    ) -> CheckContext:
        """What reaches back behind the last call of the step before; then this call
        becomes an earlier one.
        """
        earlier = tuple(self._earlier)
        # calls in between were not read, so what grows cannot be told
        if self._unread is not None:
            return replace(
                context,
                earlier=earlier,
                since=earlier[-1].boundary,
                step=earlier[-1].step + 1,
            )

        step = self._step(context)
        since = max(
            (known.boundary for known in earlier if known.step < step), default=0
        )
        if since:
            retained = list(carried(context, variables, since, attribution))
        else:
            retained = []

        if location is not None and retained:
            added, file = additions(location.body), location.body.file
            for i, history in enumerate(retained):
                if history.name:
                    # `meter.update(loss)` adds to `meter.total`
                    owner = history.name.rpartition(".")[0]
                    put = (
                        added.get(history.name)
                        or added.get(owner)
                        or addition_to(file, history.name)
                    )
                    retained[i] = history._replace(added=put)

        leaves = all_names(
            leaf for leaf in context.graph.leaves if leaf.kind == "input"
        )
        output = ", ".join(root.name for root in context.graph.roots[:3])
        context = replace(
            context,
            retained=tuple(retained),
            earlier=earlier,
            step=step,
            since=since,
        )
        self._earlier.append(
            Earlier(call, output, peek_sequence(), context.retained, leaves, step)
        )

        return context

    def _step(self, context: CheckContext) -> int:
        """The step that this call belongs to: that of the call before, if nothing was
        updated since.

        An update that nobody can see, as `w = w - lr * gradient` is one, is taken for
        granted where no optimizer holds a leaf of this graph and none was ever changed
        in place.
        """
        updated = self.recorder.between.updated()
        if not self._earlier:
            return 0
        return self._earlier[-1].step + (
            updated or not (context.optimized or self.recorder.between.saw_updates)
        )


def _homes(
    graph: Graph, listed: Sequence[Parameter], models: Models
) -> dict[int, Home]:
    known = {parameter.node for parameter in listed}
    lost = [
        leaf
        for leaf in graph.leaves
        if leaf.kind == "parameter" and leaf.node not in known
    ]
    return {
        leaf.node: place
        for leaf in lost
        if (place := home(leaf.names, models)) is not None
    }


def _is_empty(leaf: torch.Tensor, intervals: Names | None) -> bool:
    """Whether nothing is in the `.grad` of a leaf before a call, so that what is there
    afterwards is of that call.
    """
    return (leaf.is_leaf and leaf.grad is None) or bool(
        intervals and "z" in intervals[-1]
    )


def _flagged(graph: Graph, flag: str) -> bool:
    return any(flag in flags for flags in column(graph.nodes, "flags"))


def _named_tensors(reading: Reading) -> Iterator[NamedTensor]:
    """The named tensors that are not parameters of a model."""
    walked, parameters = (
        reading.walked,
        {id(tensor) for _, tensor in reading.parameters},
    )
    for tensor, names in walked.names.named():
        if id(tensor) in parameters:
            continue

        try:
            function = grad_fn_of(tensor)
            leaf, retains = tensor.is_leaf, tensor.retains_grad
        except RuntimeError:  # a view that torch refuses to follow
            continue

        yield NamedTensor(
            names=names,
            node=walked.position_of.get(function)
            if function is not None
            else reading.leaf_of.get(id(tensor)),
            storage=walked.storage_id(tensor),
            leaf=leaf,
            requires_grad=tensor.requires_grad,
            retains_grad=retains,
            aliases=walked.names.aliases(tensor),
        )
