"""Turns live models, optimizers, tensors and code into the plain facts that health checks look at.

One reader serves one run of the user's code, in which several backward calls may be read one after the other. Reads no
numbers, runs no hook, writes nothing. What to conclude from the facts is none of its business.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.detach_watch import DetachEvent, DetachWatch
from gradviz.checks.collect.held import carried, copies, cycles
from gradviz.checks.collect.ledger import LedgerKeeper
from gradviz.checks.collect.lines import ClassLines, described, dropped, home, users_frame
from gradviz.checks.collect.loop import LeafWatch, gradients_left, is_broken, loss_of, optimized
from gradviz.checks.collect.parameters import Replaced
from gradviz.checks.context import (
    CheckContext,
    Earlier,
    Entered,
    Gradients,
    Handled,
    Home,
    Model,
    NamedTensor,
    Optimizer,
    OptimizerTensor,
    Parameter,
)
from gradviz.checks.poles import at_a_pole
from gradviz.graph import Graph
from gradviz.recording.record import ModuleRun, Recording
from gradviz.source.provenance import DetachPoint, Provenance, provenance
from gradviz.source.search import (
    Change,
    CodeLocation,
    addition_to,
    additions,
    changes,
    grad_reads,
    location_at,
    location_at_end,
)
from gradviz.variables.objects import every_path, joined, parameters
from gradviz.variables.scanner import Namespace, scan
from gradviz.walker.compiled import graph_breaks
from gradviz.walker.names import flatten, outermost_modules, registered
from gradviz.walker.private import fsdp_parameters, peek_sequence, without_subclasses
from gradviz.walker.tensors import grad_fn_of, tensor_info
from gradviz.walker.values import values_of
from gradviz.walker.walk import Walked, capture

KEPT = 100
"""Earlier calls that are remembered."""


class Subject(NamedTuple):
    """What is to be checked, while it is alive. `frame` is where the user's code is at, None when it has ended.

    `create_graph`: the backward call is itself recorded, so it is a part of a step and does not end one. `ran`: the engine has
    run through it, or failed in it. `scaled`: a GradScaler multiplies losses, so gradients need not be finite.
    """

    outputs: object
    variables: Sequence[Namespace]
    title: str = ""
    names: tuple[str, ...] = ()
    frame: FrameType | None = None
    call: int | None = None
    create_graph: bool = False
    ran: bool = False
    scaled: bool = False


class Collector:
    """Reads the context of one run. `model` and `optimizer` as the user gave them; without, the variables are searched.

    `limits` are the thresholds that gradients which a call leaves are judged by; without them, they are not looked at.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        recording: Recording | None = None,
        *,
        values: bool = False,
        limits: Gradients | None = None,
    ) -> None:
        self._model, self._optimizer, self._values = model, optimizer, values
        self._limits = limits
        self.recording = recording
        self.leaf_watch = LeafWatch()
        self.ledger = LedgerKeeper()
        self.cuts: DetachWatch | None = None
        self.replaced: Replaced | None = None
        self._earlier: list[Earlier] = []
        self._parameters: list[torch.Tensor] = []  # of the call that was read last, until its backward has run
        self._leaves: dict[int, torch.Tensor] = {}  # likewise, by node
        self.leaf_names: dict[int, tuple[str, ...]] = {}  # of the calls that were read, by identity
        self._fresh: set[int] = set()  # those whose `.grad` will be of that call only
        self._unread: tuple[int, int] | None = None  # the last call, and the sequence number at it, if it is not read

    def read(self, subject: Subject) -> CheckContext:
        """Everything that is known right now. Raises NotATensorError."""
        collected: list[CheckContext] = []

        def inspect(walked: Walked) -> None:
            collected.append(self._collect(walked, subject))

        attribution = self.recording.attribution(self._model, subject.variables) if self.recording else None
        graph = capture(
            subject.outputs,
            model=self._model,
            variables=subject.variables,
            title=subject.title,
            need_graph=False,
            attribution=attribution,
            inspect=inspect,
        )
        graph = graph.with_root_names(subject.names)
        context = replace(collected[0], graph=graph)
        location = _spot(subject)
        if location is not None:
            context = _with_code(context, location)
        if subject.call is not None and not subject.create_graph:
            context = self._with_history(context, subject, location, attribution)
        return context

    def passed(self, number: int, reading: bool) -> None:
        """Call `number` comes, and may not be read. Told of every call, later calls know which ran before them."""
        if self._unread is not None:
            call, boundary = self._unread
            step = self._earlier[-1].step + 1 if self._earlier else 0
            self._earlier = [*self._earlier[-KEPT:], Earlier(call, "", boundary, 0, (), (), step)]
        self._unread = None if reading else (number, peek_sequence())
        if not reading:
            self.ledger.unread()

    def afterwards(self, context: CheckContext, filled: bool | None) -> CheckContext:
        """The same context when backward has run, with what it left in `.grad`."""
        live, self._parameters = self._parameters, []
        leaves, self._leaves = self._leaves, {}
        with without_subclasses():
            self.leaf_watch.after(bool(filled))
            self.ledger.after(bool(filled))
            if self.cuts is not None:
                self.cuts.next_step()
            if not filled:
                return replace(context, handled={})
            parameters = tuple(
                parameter._replace(has_grad=tensor.grad is not None)
                for parameter, tensor in zip(context.parameters, live)
            )
        if self._limits is not None and context.gradients is None:
            with suppress(Exception):  # gradients of the user's own classes may refuse anything
                left = gradients_left(leaves, self._fresh)
                context = replace(context, gradients=self._limits._replace(leaves=left))
        return replace(context, after=True, parameters=parameters)

    # -- facts about tensors, modules and optimizers --------------------------------------------------------------------

    def _collect(self, walked: Walked, subject: Subject) -> CheckContext:
        ignored = _ignored(walked.graph)
        leaf_of = {id(tensor): node for node, tensor in walked.variables.items() if node not in ignored}
        models = self._models(subject.variables)
        read, live = self._read_parameters(models, leaf_of)
        if ignored:
            inside = {id(walked.variables[node]): node for node in ignored}
            read = [parameter._replace(compiled=inside.get(id(tensor))) for parameter, tensor in zip(read, live)]
        self._parameters = live if subject.call is not None else []
        index = {id(tensor): i for i, tensor in enumerate(live)}
        graph = walked.graph
        loss = loss_of(subject.outputs) if subject.call is not None else None
        handled = self.leaf_watch.before(walked.variables) if subject.call is not None and self._unread is None else {}
        if subject.call is not None:
            self._leaves = dict(walked.variables)
            fresh = (i for i, leaf in walked.variables.items() if subject.ran or _is_empty(leaf, handled.get(i)))
            self._fresh = set(fresh)
            self.leaf_names |= {id(leaf): graph.leaf_of[i].names for i, leaf in walked.variables.items()}
            with without_subclasses():
                known, optimizers = list(zip(read, live)), self._optimizers(subject.variables)
                if self.cuts is not None:
                    self.ledger.switched(self.cuts.switches, known)
                self.ledger.reached(walked, subject.call, subject.variables, models, known, optimizers, handled)
        return CheckContext(
            graph,
            handled=handled,
            ran=subject.ran,
            scaled=subject.scaled,
            call=subject.call,
            after=subject.call is None and _has_run(graph),
            recorded=self.recording is not None,
            grad_enabled=torch.is_grad_enabled(),
            frozen_at=self.cuts.switches.off_at(live[-1]) if self.cuts is not None and _all_frozen(read) else None,
            models=tuple(self._model_facts(name, model) for name, model in models),
            parameters=tuple(read),
            optimizers=tuple(self._read_optimizers(walked, subject.variables, leaf_of, index, read)),
            named_tensors=tuple(_named_tensors(walked, leaf_of, index)),
            homes=_homes(graph, read, models),
            copies=tuple(copies(walked)),
            cycles=tuple(cycles(walked)),
            breaks=tuple(graph_breaks()),
            entered=tuple(self._entered(walked)),
            numbers=self._described(walked, tuple(self.cuts.numbers.values())) if self.cuts is not None else (),
            provenances={name: Provenance(cuts) for name, cuts in self._cut_roots(walked, subject)} or None,
            loss=loss,
            values=values_of(walked, subject.outputs) if self._suspicious(walked, subject, loss) else None,
        )

    def _suspicious(self, walked: Walked, subject: Subject, loss: float | None) -> bool:
        """Whether to read all numbers: when told to, and where some may not be finite."""
        if self._values or is_broken(loss, subject.variables, subject.scaled):
            return True
        return subject.call is not None and not subject.ran and not subject.scaled and at_a_pole(walked.nodes)

    def _models(self, variables: Sequence[Namespace]) -> list[tuple[str, torch.nn.Module]]:
        if self._model is not None:
            return [("", self._model)]
        outermost = outermost_modules(None, variables)
        listed = [
            (name, model)  # a layer in a plain list of another module is in none of that one's tables
            for name, model in outermost
            if not any(name.startswith(f"{other}.") for other, _ in outermost)
        ]
        return [(name, model) for name, model in listed if parameters(model)]

    def _model_facts(self, name: str, model: torch.nn.Module) -> Model:
        run = self.recording.run_of(model) if self.recording is not None else None
        return Model(name, type(model).__name__, self._model is not None, run.source if run is not None else None)

    def _read_parameters(
        self, models: Sequence[tuple[str, torch.nn.Module]], leaf_of: dict[int, int]
    ) -> tuple[list[Parameter], list[torch.Tensor]]:
        """Each parameter once, under all its names, and the live tensors in the same order."""
        by_tensor: dict[int, Parameter] = {}
        live: dict[int, torch.Tensor] = {}
        lines = ClassLines()
        for i, (prefix, model) in enumerate(models):
            modules = dict(every_path(model))
            gathered = _gathered(model)
            for path, tensor, kind in registered("", model):
                if kind != "parameter":
                    continue
                tensor, whole = gathered.get(
                    id(tensor), (tensor, tensor)
                )  # the shard has the gradient, the graph the whole
                name, known = joined(prefix, path), by_tensor.get(id(tensor))
                if known is not None:
                    by_tensor[id(tensor)] = known._replace(names=(*known.names, name))
                    continue
                owner = path.rpartition(".")[0]
                module = modules[owner]
                live[id(tensor)] = tensor
                node = leaf_of.get(id(whole))
                made, forward = lines.of(modules, path) if node is None and tensor.requires_grad else (None, None)
                by_tensor[id(tensor)] = Parameter(
                    names=(name,),
                    module=joined(prefix, owner),
                    type=type(module).__name__,
                    model=i,
                    tensor=tensor_info(tensor),
                    requires_grad=tensor.requires_grad,
                    has_grad=tensor.grad is not None,
                    node=node,
                    made=made,
                    forward=forward,
                    sharded=type(tensor).__name__ == "DTensor",
                    gathered=whole is not tensor,
                    run=self._run(modules, owner),
                    replaced=self.replaced.at(tensor) if node is None and self.replaced is not None else None,
                )
        return list(by_tensor.values()), list(live.values())

    def _run(self, modules: dict[str, torch.nn.Module], path: str) -> ModuleRun | None:
        """How the module ran that owns a parameter. A list of parameters has no forward: the module around it counts."""
        if self.recording is None:
            return None
        while path and isinstance(modules[path], (torch.nn.ParameterList, torch.nn.ParameterDict)):
            path = path.rpartition(".")[0]
        return self.recording.run_of(modules[path])

    def _read_optimizers(
        self,
        walked: Walked,
        variables: Sequence[Namespace],
        leaf_of: dict[int, int],
        index: dict[int, int],
        parameters: Sequence[Parameter],
    ) -> Iterator[Optimizer]:
        for name, optimizer in self._optimizers(variables):
            tensors = []
            for tensor in optimized(optimizer):
                number = index.get(id(tensor))
                names = parameters[number].names if number is not None else walked.names.leaf(tensor)
                node = parameters[number].node if number is not None else leaf_of.get(id(tensor))
                tensors.append(OptimizerTensor(names, tensor_info(tensor), node, number, tensor.grad is not None))
            yield Optimizer(name, type(optimizer).__name__, tuple(tensors), self.ledger.made(optimizer))

    def _optimizers(self, variables: Sequence[Namespace]) -> list[tuple[str, torch.optim.Optimizer]]:
        if self._optimizer is not None:
            return [("optimizer", self._optimizer)]
        by_object: dict[int, tuple[str, torch.optim.Optimizer]] = {}
        for variable in scan(variables):
            if variable.kind == "optimizer":
                by_object.setdefault(id(variable.value), (variable.name, variable.value))
        return list(by_object.values())

    # -- what was cut off -------------------------------------------------------------------------------------------------

    def _entered(self, walked: Walked) -> Iterator[Entered]:
        """The nodes of the graph that take in what was cut off."""
        seen = self.cuts.entered if self.cuts is not None else {}
        for node in walked.graph.nodes if seen else ():
            cuts = seen.get(node.sequence) if node.sequence is not None else None
            if cuts:
                yield Entered(node.id, self._described(walked, cuts))
        for i, leaf in walked.variables.items() if self.cuts is not None else ():
            assert self.cuts is not None
            cuts = self.cuts.cuts_of(leaf)
            if cuts:
                yield Entered(i, self._described(walked, cuts))

    def _cut_roots(self, walked: Walked, subject: Subject) -> Iterator[tuple[str, tuple[DetachPoint, ...]]]:
        """The outputs that were cut off themselves."""
        names = subject.names or tuple(root.name for root in walked.graph.roots)
        for name, (_, output) in zip(names, flatten(subject.outputs)):
            cuts = self.cuts.cuts_of(output) if self.cuts is not None else ()
            if cuts:
                yield name, self._described(walked, cuts)

    def _described(self, walked: Walked, cuts: Sequence[DetachEvent]) -> tuple[DetachPoint, ...]:
        leaves = [cut.leaf() if cut.leaf is not None else None for cut in cuts]
        return tuple(
            described(cut, walked.names.leaf(leaf) if leaf is not None else ()) for cut, leaf in zip(cuts, leaves)
        )

    # -- from call to call ----------------------------------------------------------------------------------------------

    def _with_history(
        self, context: CheckContext, subject: Subject, location: CodeLocation | None, attribution: Any
    ) -> CheckContext:
        """What reaches back behind the last call of the step before; then this call becomes an earlier one."""
        assert subject.call is not None
        if self._unread is not None:  # calls in between were not read, so what grows cannot be told
            since = self._earlier[-1].boundary if self._earlier else 0
            return replace(context, earlier=tuple(self._earlier), since=since, step=self._earlier[-1].step + 1)
        earlier = tuple(self._earlier)
        step = self._step(context)
        since = max((call.boundary for call in earlier if call.step < step), default=0)
        retained = list(carried(context, subject.variables, since, attribution)) if since else []
        if location is not None and retained:
            added, file = additions(location.body), location.body.file
            for i, history in enumerate(retained):
                if history.name:
                    owner = history.name.rpartition(".")[0]  # `meter.update(loss)` adds to `meter.total`
                    put = added.get(history.name) or added.get(owner) or addition_to(file, history.name)
                    retained[i] = history._replace(added=put)
        graph = context.graph
        leaves = tuple(name for leaf in graph.leaves if leaf.kind == "input" for name in leaf.names)
        output = ", ".join(root.name for root in graph.roots[:3])
        call = Earlier(subject.call, output, peek_sequence(), len(graph.nodes), tuple(retained), leaves, step)
        self._earlier.append(call)
        return replace(context, retained=tuple(retained), earlier=earlier, step=step, since=since)

    def _step(self, context: CheckContext) -> int:
        """The step that this call belongs to: that of the call before, if nothing was updated since.

        An update that nobody can see, as `w = w - lr * gradient` is one, is taken for granted where no optimizer holds a leaf of
        this graph and none was ever changed in place.
        """
        updated = self.leaf_watch.updated()
        if not self._earlier:
            return 0
        holds_leaf = any(tensor.node is not None for optimizer in context.optimizers for tensor in optimizer.tensors)
        return self._earlier[-1].step + (updated or not (holds_leaf or self.leaf_watch.saw_updates))


def _homes(graph: Graph, listed: Sequence[Parameter], models: Sequence[tuple[str, torch.nn.Module]]) -> dict[int, Home]:
    known = {parameter.node for parameter in listed}
    lost = [leaf for leaf in graph.leaves if leaf.kind == "parameter" and leaf.node not in known]
    return {leaf.node: place for leaf in lost if (place := home(leaf.names, models)) is not None}


def _gathered(model: torch.nn.Module) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """For each parameter that FSDP2 shards: its shard and the whole that the graph holds, by the identity of either."""
    if "torch.distributed.fsdp" not in sys.modules:
        return {}
    pairs = [(pair.shard, pair.whole) for pair in fsdp_parameters(model) if pair.whole is not None]
    return {id(tensor): pair for pair in pairs for tensor in pair}


def _ignored(graph: Graph) -> set[int]:
    """Leaves that a compiled function takes, and for which its backward gives nothing: no edge of its inside leads there."""
    if not any("in_compiled" in node.flags for node in graph.nodes):
        return set()
    reached = {edge.producer for edge in graph.edges} | {root.node for root in graph.roots}
    return {leaf.node for leaf in graph.leaves} - reached


def _is_empty(leaf: torch.Tensor, handled: tuple[Handled, ...] | None) -> bool:
    """Whether nothing is in the `.grad` of a leaf before a call, so that what is there afterwards is of that call."""
    return (leaf.is_leaf and leaf.grad is None) or bool(handled and handled[-1].reset)


def _all_frozen(parameters: Sequence[Parameter]) -> bool:
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def _has_run(graph: Graph) -> bool:
    """Whether backward has gone through the graph: it has freed something, or left gradients."""
    return any("freed" in node.flags for node in graph.nodes) or any(leaf.has_grad for leaf in graph.leaves)


def _named_tensors(walked: Walked, leaf_of: dict[int, int], parameters: dict[int, int]) -> Iterator[NamedTensor]:
    """The named tensors that are not parameters of a model."""
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
            tensor=tensor_info(tensor),
            node=walked.position_of.get(function) if function is not None else leaf_of.get(id(tensor)),
            storage=walked.storage_id(tensor),
            leaf=leaf,
            requires_grad=tensor.requires_grad,
            has_grad=(leaf or retains) and tensor.grad is not None,  # reading it elsewhere warns
            retains_grad=retains,
            version=None if tensor.is_inference() else tensor._version,
            aliases=walked.names.aliases(tensor),
        )


# -- facts about the code ----------------------------------------------------------------------------------------------


def _spot(subject: Subject) -> CodeLocation | None:
    frame = users_frame(subject.frame)
    if frame is not None:
        return location_at(frame.f_code, frame.f_lineno, subject.variables)
    return location_at_end(subject.variables)


def _with_code(context: CheckContext, location: CodeLocation) -> CheckContext:
    graph = context.graph
    unused = any(parameter.node is None and parameter.requires_grad for parameter in context.parameters)
    provenances: dict[str, Provenance] = dict(context.provenances or {})
    for root in graph.roots:
        if root.node is None or unused:
            read = provenance(location, root.name, whole=root.node is not None)
            seen = provenances.get(root.name)
            provenances[root.name] = read if seen is None else Provenance(seen.cuts, read.made)
    stale = any("modified" in node.flags for node in graph.nodes)
    by_hand = any(times[-1].changed for times in context.handled.values() if times)
    made: tuple[Change, ...] = tuple(changes(location.body)) if stale or by_hand else ()
    reads = grad_reads(location.body)
    named_tensors = tuple(
        tensor._replace(grad_read=next((reads[name] for name in tensor.names if name in reads), None))
        for tensor in context.named_tensors
    )
    lost = [
        parameter
        for parameter in context.parameters
        if parameter.node is None and parameter.requires_grad and parameter.run is not None
    ]
    fates = {
        source: dropped(source) for source in {parameter.run.source for parameter in lost if parameter.run is not None}
    }
    parameters = tuple(
        parameter._replace(dropped=fates.get(parameter.run.source))
        if parameter.run is not None and parameter.node is None
        else parameter
        for parameter in context.parameters
    )
    backward = location.body.line(location.line) if context.call is not None and location.line is not None else None
    completed = replace(
        context,
        provenances=provenances,
        changes=made,
        named_tensors=named_tensors,
        backward=backward,
        parameters=parameters,
    )
    return replace(completed, reads_grad=bool(reads))
