"""Keeps one record of a run: who updates what. Optimizers as they are made and as they step, leaves, models, and what moved.

Tensors, optimizers and modules are held weakly between the calls. Reads a few elements of leaves that no optimizer holds, and
no other number; writes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradviz.checks.collect.lines import Models, Variables, made_at, returned_in, users_frame
from gradviz.checks.collect.loop import TensorRef, is_readable, is_scaled, optimized
from gradviz.checks.collect.parameters import Pair, Switches, mistyped, only_eval, pairs, still_tied, switched_in
from gradviz.checks.context import Handled, Ledger, Mixed, Mode, Parameter, Stepping, Trained
from gradviz.checks.flow import behind
from gradviz.checks.words import Names
from gradviz.gradients.values import is_zero
from gradviz.graph import Graph, SourceLine
from gradviz.packages import code_line, with_text
from gradviz.source.search import registers_buffer
from gradviz.variables.objects import joined, parameters as own_parameters, submodules
from gradviz.walker.isolation import isolated
from gradviz.walker.private import has_compiled
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import Ended, tapped
from gradviz.walker.tensors import tensor_info, version_of
from gradviz.walker.walk import Walked

_ELEMENTS = 8  # of a leaf that nobody seems to update, to see whether it moves
_ZERO_CALLS = 3  # for which it is seen whether a weight is zero and stays so
_Parameters = Sequence[tuple[Parameter, torch.Tensor]]
_Modules = dict[str, tuple[str, torch.nn.Module]]
Optimizers = Sequence[tuple[str, torch.optim.Optimizer]]


class _Leaf:
    """One leaf and what is known of it so far."""

    def __init__(self, tensor: torch.Tensor, trained: Trained) -> None:
        self.ref = weakref.ref(tensor)
        self.trained = trained
        self.mark: object = None  # version and a few elements, as of the first call
        self.holders: set[int] = set()  # ids of records of optimizers
        self.updates = 0
        self.reached = False  # by the call that runs now
        self.zero = False  # all elements are 0 at that call


class _Optimizer:
    """One optimizer and what is known of it so far."""

    def __init__(self, optimizer: torch.optim.Optimizer, source: SourceLine | None, number: int) -> None:
        self.ref = weakref.ref(optimizer)
        self.number = number  # of those that were made before
        self.type = type(optimizer).__name__
        self.source = source
        self.name = ""
        self.factors: list[CodeType] = []  # of the functions that its schedulers ask for what to multiply its rate by
        self.steps = self.idle = self.emptied = 0
        self.held: set[int] = set()
        self.fed: set[int] = set()  # by identity of the tensor, as all sets here
        self.frozen: set[int] = set()
        self.reached: set[int] = set()
        self.versions: dict[int, int | None] = {}  # at the last call
        self.counted = 0  # steps until then
        self.due: Mixed | None = None  # what its next step would find
        self.mixed: list[Mixed] = []  # what its steps have found


class _Last(NamedTuple):
    """The call before: its graph, its leaves by identity, the line that made it, and the steps that optimizers had taken."""

    graph: Graph
    nodes: Mapping[int, int]
    source: SourceLine | None
    steps: Mapping[_Optimizer, int]


class _Birth(NamedTuple):
    """A parameter that is younger than an optimizer: the line of the user's that made it, and the optimizers before it."""

    ref: TensorRef
    source: SourceLine
    after: int


class LedgerKeeper:
    """Of one run. `reached` belongs before each backward call that is read, `after` behind it."""

    def __init__(self) -> None:
        self._leaves: dict[int, _Leaf] = {}
        self._optimizers: dict[int, _Optimizer] = {}
        self._made = 0  # optimizers
        self._births: dict[int, _Birth] = {}
        self._names: dict[int, Names] = {}
        self._statistics: dict[int, tuple[weakref.ref[torch.nn.Module], int | None, object]] = {}
        self._pairs: list[tuple[tuple[str, str], TensorRef, TensorRef, bool]] = []
        self._noted = (
            Ledger()
        )  # but for leaves and optimizers; `models` at the last call whose gradients a step has used
        self._last: _Last | None = None  # of the calls that filled gradients
        self._coming: _Last | None = None
        self._in_a_row = True
        self._modes: tuple[Mode, ...] = ()  # at the last call
        self._modes_due: tuple[Mode, ...] = ()  # at the last call that filled gradients, until a step uses them

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, optimizers are noted as they are made, and as they begin a step."""

        def made(frame: FrameType, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> Ended:
            @uninterrupted
            def ended(returned: bool, result: object) -> None:
                if returned:
                    self._known(optimizer, frame)

            return ended

        def scheduled(frame: FrameType, made: Any, optimizer: Any, *_: Any, **__: Any) -> Ended:
            @uninterrupted
            def ended(returned: bool, result: object) -> None:
                with suppress(Exception):  # a scheduler of the user's own may hold anything
                    factors = vars(made).get("lr_lambdas", ())
                    codes = [getattr(factor, "__code__", None) for factor in factors]
                    self._known(optimizer).factors += [code for code in codes if code is not None]

            return ended

        def born(frame: FrameType, *_: Any, **__: Any) -> Ended | None:
            if not self._made:
                return None
            return lambda returned, parameter: self._is_born(parameter, frame) if returned else None

        handle = register_optimizer_step_pre_hook(self._steps)
        try:
            with (
                tapped(torch.optim.Optimizer.__init__, made),
                tapped(torch.nn.Parameter.__new__, born),
                tapped(torch.optim.lr_scheduler.LRScheduler.__init__, scheduled),
            ):
                yield
        finally:
            handle.remove()

    @uninterrupted
    def _is_born(self, parameter: torch.Tensor, frame: FrameType) -> None:
        """A parameter was made after an optimizer, which may be one too late for it."""
        users, key, births = users_frame(frame), id(parameter), self._births
        if users is not None:

            def gone(ref: object) -> None:
                if key in births and births[key].ref is ref:
                    del births[key]

            source = code_line(users.f_code, users.f_lineno)
            births[key] = _Birth(weakref.ref(parameter, gone), source, self._made)

    def births(self, leaves: Mapping[int, torch.Tensor]) -> dict[int, SourceLine]:
        """The lines that made those of these leaves, by node, that are younger than an optimizer."""
        born = {node: self._births.get(id(leaf)) for node, leaf in leaves.items()}
        return {
            node: with_text(birth.source)
            for node, birth in born.items()
            if birth is not None and birth.ref() is leaves[node]
        }

    def _known(self, optimizer: torch.optim.Optimizer, frame: FrameType | None = None) -> _Optimizer:
        known = self._optimizers.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            frame = users_frame(frame)
            source = code_line(frame.f_code, frame.f_lineno) if frame is not None else None
            known = self._optimizers[id(optimizer)] = _Optimizer(optimizer, source, self._made)
            self._made += 1
        return known

    def _steps(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling():  # that must not get a graph break from this: `_unseen_step`
            return
        with isolated(), suppress(Exception):  # an optimizer of the user's own may hold anything
            known = self._known(optimizer)
            known.steps += 1
            self._noted = self._noted._replace(models=self._modes_due or self._noted.models)
            if known.due is not None:
                known.mixed.append(known.due)
                known.due = None
            known.idle += all(float(group.get("lr", 1.0)) == 0.0 for group in optimizer.param_groups)
            for tensor in optimized(optimizer):
                known.held.add(id(tensor))
                if tensor.is_leaf and tensor.grad is not None:
                    known.fed.add(id(tensor))
                    if not tensor.requires_grad:
                        known.frozen.add(id(tensor))
                    leaf = self._leaves.get(id(tensor))
                    if leaf is not None and leaf.ref() is tensor:
                        leaf.updates += 1

    # -- at a backward call ---------------------------------------------------------------------------------------------

    def reached(
        self,
        walked: Walked,
        call: int,
        variables: Variables,
        models: Models,
        parameters: _Parameters,
        optimizers: Optimizers,
        handled: Mapping[int, tuple[Handled, ...]],
        frame: FrameType | None,
    ) -> None:
        """A call is about to run through these leaves."""
        self._name(parameters, optimizers)
        known = {id(tensor): parameter for parameter, tensor in parameters}
        modules = _by_path(models)
        for node, tensor in walked.variables.items():
            self._reach(walked, node, tensor, call, known.get(id(tensor)), modules)
        reached = {id(tensor): node for node, tensor in walked.variables.items()}
        for optimizer in self._optimizers.values():
            self._unseen_step(optimizer)
            again = [handled[node][-1] for key, node in reached.items() if key in optimizer.held and node in handled]
            optimizer.reached.update(optimizer.held & reached.keys())
            optimizer.emptied += bool(again) and all(
                left.reset and not (left.stepped or left.missed or left.changed)
                for left in again  # and never used
            )
        self._noted = self._noted._replace(
            scaled=self._noted.scaled or is_scaled(variables),
            mistyped=tuple(mistyped(models, parameters, variables)) or self._noted.mistyped,
            ties=tuple(still_tied(self._alike(models), variables)),
        )
        self._modes = tuple(self._mode(name, model, parameters, variables) for name, model in models)
        frame = users_frame(frame)
        source = with_text(code_line(frame.f_code, frame.f_lineno)) if frame is not None else None
        steps = {optimizer: optimizer.steps for optimizer in self._optimizers.values()}
        self._coming = _Last(walked.graph, reached, source, steps)
        if self._last is not None:
            last = {key: handled[node][-1] for key, node in reached.items() if node in handled}
            self._mix(self._last, self._coming, {key for key, kept in last.items() if _is_untouched(kept)})

    def _mix(self, last: _Last, coming: _Last, untouched: set[int]) -> None:
        """Find optimizers whose parameters the call before has filled for another one, which has taken its step since.

        That one's parameters come before them in the graph, as a generator's before those of a discriminator, and are no part of
        the call that comes, which adds to the same gradients.
        """
        for waiting in self._optimizers.values():
            mine = waiting.held & coming.nodes.keys() & last.nodes.keys()
            if mine and not mine <= untouched:
                waiting.due = None
            if not mine or not mine <= untouched or waiting.steps != last.steps.get(waiting):
                continue
            users = (edge.consumer for key in mine for edge in last.graph.consumers(last.nodes[key]))
            before = set(behind(last.graph, users))
            for other in self._optimizers.values():
                stepped = other.steps > last.steps.get(other, other.steps)
                apart = other.held.isdisjoint((*coming.nodes, *waiting.held))
                if stepped and apart and any(last.nodes[key] in before for key in other.held & last.nodes.keys()):
                    waiting.due = Mixed(other.name or other.type, last.source, coming.source)

    def passed(self, reading: bool) -> None:
        """A call comes. After one that is not read in a row, whose gradients a step uses is not known."""
        self._in_a_row = reading
        if not reading:
            self._modes_due, self._last = (), None

    def _unseen_step(self, known: _Optimizer) -> None:
        """Count a step that was compiled, and so ran no hook: the parameters have changed since the last call all the same."""
        live = known.ref()
        tensors = list(optimized(live)) if live is not None and has_compiled() else []
        versions = {id(tensor): version_of(tensor) for tensor in tensors}
        moved = {key for key, version in versions.items() if known.versions.get(key, version) != version}
        if moved and known.steps == known.counted:
            known.steps += 1
            known.fed |= moved
            for key in moved & self._leaves.keys():
                self._leaves[key].updates += 1
        known.versions, known.counted = versions, known.steps

    def switched(self, switches: Switches, parameters: _Parameters) -> None:
        """What was switched on and off before the first call."""
        if not self._noted.calls:
            names = {id(tensor): parameter.names for parameter, tensor in parameters}
            self._noted = self._noted._replace(thawed=tuple(switches.in_vain(names)))

    def after(self, filled: bool) -> None:
        """The call has run, and filled the gradients of its leaves, or not."""
        calls, flat = self._noted.calls + filled, False
        if filled and self._in_a_row:
            self._modes_due, self._last = self._modes, self._coming
        live = [(leaf, leaf.ref()) for leaf in self._leaves.values() if leaf.reached]
        for leaf, tensor in live:
            if leaf.zero and filled and tensor is not None and tensor.grad is not None and is_zero(tensor.grad):
                leaf.trained = leaf.trained._replace(zero=leaf.trained.zero + 1)
            leaf.zero = leaf.reached = False
        if filled and calls <= _ZERO_CALLS:
            gradients = [tensor.grad for leaf, tensor in live if tensor is not None and leaf.trained.parameter]
            flat = bool(gradients) and all(gradient is not None and _flat(gradient) for gradient in gradients)
        self._noted = self._noted._replace(calls=calls, flat=self._noted.flat + flat)

    def _alike(self, models: Models) -> Iterator[Pair]:
        """The parameters that were alike at the first call, as far as they live."""
        if not self._noted.calls and not self._pairs:
            self._pairs = [
                (names, weakref.ref(first), weakref.ref(second), shared)
                for name, model in models
                for names, first, second, shared in pairs(name, model)
            ]
        for names, first_ref, second_ref, shared in self._pairs:
            left, right = first_ref(), second_ref()
            if left is not None and right is not None:
                yield names, left, right, shared

    def _name(self, parameters: _Parameters, optimizers: Optimizers) -> None:
        for name, optimizer in optimizers:
            self._known(optimizer).name = name
        for parameter, tensor in parameters:
            self._names[id(tensor)] = parameter.names
        for known in self._optimizers.values():
            live = known.ref()
            if live is not None:
                with isolated(), suppress(Exception):
                    known.held.update(map(id, optimized(live)))

    def _reach(
        self, walked: Walked, node: int, tensor: torch.Tensor, call: int, known: Parameter | None, modules: _Modules
    ) -> None:
        leaf = self._leaves.get(id(tensor))
        new = leaf is None or leaf.ref() is not tensor
        if leaf is None or new:
            names = known.names if known is not None else walked.names.leaf(tensor)
            trained = Trained(names, tensor_info(tensor), node, call, 0, known is not None)
            if known is not None:
                owner, module = modules.get(known.module, ("", None))
                source = _made_in(known.names[0], modules) if module is not None else None
                trained = trained._replace(model=owner, module=known.module, type=known.type, source=source)
            else:
                trained = _owned(trained, modules)
            birth = self._births.get(id(tensor))
            if birth is not None and birth.ref() is tensor:
                trained = trained._replace(born=with_text(birth.source), after=birth.after)
            leaf = self._leaves[id(tensor)] = _Leaf(tensor, trained)
            self._names.setdefault(id(tensor), names)
        leaf.zero = leaf.trained.reached < _ZERO_CALLS and _all_zero(tensor)
        leaf.reached = True
        leaf.trained = leaf.trained._replace(node=node, call=call, reached=leaf.trained.reached + 1)
        if not any(id(tensor) in optimizer.held for optimizer in self._optimizers.values()):
            mark = _mark(tensor)
            if new:
                leaf.mark = mark
            elif mark is not None:
                leaf.trained = leaf.trained._replace(moved=bool(leaf.trained.moved) or mark != leaf.mark)

    def _mode(self, name: str, model: torch.nn.Module, parameters: _Parameters, variables: Variables) -> Mode:
        sleeping, norms = [], []
        for path, module in submodules(model):
            full = joined(name, path)
            if isinstance(module, _DropoutNd) and module.p and not module.training:
                sleeping.append(full)
            if isinstance(module, _BatchNorm):
                own = [weight for weight in module._parameters.values() if weight is not None]
                if not module.training:
                    sleeping += [full] if any(weight.requires_grad for weight in own) else []
                elif own and not any(weight.requires_grad for weight in own):
                    frozen = next(weight for weight in own_parameters(model) if not weight.requires_grad)
                    norms += [full] if self._counted(module, frozen) else []
        mine = [(parameter, tensor) for parameter, tensor in parameters if parameter.names[0].startswith(f"{name}.")]
        held = set().union(*(optimizer.held for optimizer in self._optimizers.values()))
        count = sum(id(tensor) in held for _, tensor in mine)
        sharded = any(parameter.sharded for parameter, _ in mine)
        kind, training = type(model).__name__, model.training
        wanted = norms if training else sleeping
        switched = switched_in(variables, name, "train" if training else "eval") if wanted else None
        at = only_eval(variables, name) if mine and not training and not sleeping else None
        return Mode(name, kind, training, len(mine), count, tuple(sleeping), tuple(norms), sharded, switched, at)

    def _counted(self, norm: _BatchNorm, first: torch.Tensor) -> bool:
        """Whether the running statistics of a layer have moved since the call before. Torch counts its batches in place.

        `first` is a frozen parameter of the model around it: one that moves all the same follows another network.
        """
        if norm.num_batches_tracked is None:
            return False
        version, weights = version_of(norm.num_batches_tracked), (_mark(first), *map(_mark, norm.parameters()))
        last = self._statistics.get(id(norm))
        self._statistics[id(norm)] = (weakref.ref(norm), version, weights)
        if last is None or last[0]() is not norm or last[2] != weights:
            return False  # an average of another network's weights
        return last[1] != version

    def names_of(self, key: int) -> Names:
        """The names of the leaf with this identity, () when none was seen."""
        return self._names.get(key, ())

    def made(self, optimizer: torch.optim.Optimizer) -> SourceLine | None:
        """The line that made an optimizer."""
        known = self._optimizers.get(id(optimizer))
        source = known.source if known is not None and known.ref() is optimizer else None
        return with_text(source) if source is not None else None

    # -- in the end -----------------------------------------------------------------------------------------------------

    def ledger(self, ended: bool = False) -> Ledger:
        """All that is known. `ended`: the script has come to its end."""
        every = list(self._optimizers.values())
        leaves = []
        for key, leaf in self._leaves.items():
            holders = tuple(optimizer.name or optimizer.type for optimizer in every if key in optimizer.held)
            leaves.append(leaf.trained._replace(holders=holders, updates=leaf.updates))
        optimizers = tuple(self._stepping(optimizer) for optimizer in every if optimizer.held or optimizer.steps)
        models = self._noted.models or self._modes_due or self._modes
        return self._noted._replace(leaves=tuple(leaves), optimizers=optimizers, models=models, ended=ended)

    def _stepping(self, optimizer: _Optimizer) -> Stepping:
        def names(keys: set[int]) -> Names:
            return tuple(names[0] for key in self._names if key in keys and (names := self._names[key]))

        return Stepping(
            optimizer.name,
            optimizer.type,
            with_text(optimizer.source) if optimizer.source is not None else None,
            optimizer.steps,
            len(optimizer.held),
            len(optimizer.fed),
            len(optimizer.reached),
            optimizer.idle,
            returned_in(optimizer.factors) if optimizer.idle else None,
            names(optimizer.frozen),
            names(optimizer.held),
            optimizer.emptied,
            tuple(optimizer.mixed),
            optimizer.number,
        )


def _is_untouched(handled: Handled) -> bool:
    return handled.reset is False and not (handled.stepped or handled.missed or handled.changed)


def _mark(tensor: torch.Tensor) -> object:
    """What changes when a leaf does: its version, and a few of its elements, for writing to `.data` leaves that alone."""
    if not is_readable(tensor):
        return None
    with isolated(), torch.no_grad():
        return version_of(tensor), tuple(map(str, tensor.detach().flatten()[:_ELEMENTS].tolist()))


def _all_zero(tensor: torch.Tensor) -> bool:
    if not is_readable(tensor):
        return False
    values = tensor.detach()
    return values.dim() > 1 and _flat(values)


def _flat(gradient: torch.Tensor) -> bool:
    """Whether all is zero; the first element is looked at before all of it is read."""
    if not is_readable(gradient) or gradient.detach().flatten()[:1].any():
        return False
    return bool(is_zero(gradient))


def _owned(trained: Trained, modules: _Modules) -> Trained:
    """The same with the module that holds the tensor as a plain attribute, if one does, and the line that puts it there."""
    for name in trained.names:
        path, _, attribute = name.rpartition(".")
        model, owner = modules.get(path, ("", None))
        if owner is not None:
            init = getattr(vars(type(owner)).get("__init__"), "__code__", None)
            buffer = registers_buffer(init.co_filename, attribute) if init is not None else None
            source = made_at(type(owner), attribute) or buffer
            return trained._replace(names=(name,), model=model, module=path, type=type(owner).__name__, source=source)
    return trained


def _made_in(path: str, modules: _Modules) -> SourceLine | None:
    """Where the nearest class outside torch around a parameter makes it, or the module that it is in."""
    while path:
        path, _, attribute = path.rpartition(".")
        module = modules.get(path, ("", None))[1]
        if module is not None and not type(module).__module__.startswith("torch."):
            return made_at(type(module), attribute)
    return None


def _by_path(models: Models) -> _Modules:
    """All modules by their paths, which begin with the name of the model: that name, and the module."""
    modules: _Modules = {}
    for name, model in models:
        for path, module in submodules(model):
            modules.setdefault(joined(name, path), (name, module))
    return modules
