"""Follows the state of models: states that are kept and move along, models that follow themselves, averages of weights.

Compares memory, and a few elements of what is loaded; keeps tensors weakly.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isclose
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.calls import Facts, Observer, TorchCall, reads, taps
from gradviz.checks.collect.lines import Variables, line_at
from gradviz.checks.collect.numbers import is_readable
from gradviz.checks.collect.parameters import files_of
from gradviz.checks.record import Alias, Misuse
from gradviz.cuts.torch_calls import PLAIN, is_real
from gradviz.packages import Place
from gradviz.source.code_line import assigned
from gradviz.source.search import follows, keys_read, loads_back, second_name
from gradviz.variables.objects import is_a, own_attributes, parameters
from gradviz.walker.isolation import isolated
from gradviz.walker.taps import Ended
from gradviz.walker.tensors import storage_of, version_of
from gradviz.walker.walk import Walked

_ELEMENTS = 64  # of each parameter that are compared


class _StateTensor(NamedTuple):
    """A tensor of a state: the line that asked for it, its version then, and the step."""

    place: Place
    version: int | None
    step: int


class _Weighed(NamedTuple):
    """A tensor times a number: where it is in memory, and the number."""

    memory: object
    storage: object
    factor: float


class StateWatch(Observer):
    """Of one run."""

    def _begin(self) -> None:
        self._trained: dict[object, int] = {}  # identities of parameters that a call has reached, by their memory
        self._taken = Facts[_StateTensor]()
        self._parts = Facts[_Weighed]()
        # steps that loaded what was there, by line of an old state
        self._same_loaded = defaultdict[Place, set[int]](set)
        self._kept: dict[Place, weakref.ref[torch.Tensor]] = {}  # a tensor of the last state that each line has taken

        self._restored: list[tuple[Place, tuple[str, ...]]] = []  # checkpoints from which a training may go on

    def _forget(self) -> None:
        self._parts.clear()
        for place, ref in list(self._kept.items()):
            if (tensor := ref()) is not None and self._old(tensor) and loads_back(line_at(place)):
                self._note("moves along", place)

    def read(self, walked: Walked) -> None:
        self._trained |= {storage_of(leaf): id(leaf) for leaf in walked.variables.values()}
        for place, words in self._restored:
            self._note("not restored", place, *words)
        self._restored.clear()

    # -- states -----------------------------------------------------------------------------------------------------------

    @taps(torch.nn.Module.state_dict)
    def _asked(self, frame: FrameType, module: Any, *given: Any, **options: Any) -> Ended | None:
        place = self._place(frame.f_back) if not given and options.get("destination") is None else None
        if place is None:
            return None

        def ended(returned: bool, result: Any) -> None:
            for tensor in dict(result or ()).values() if returned else ():
                if is_real(tensor):
                    self._taken.put(tensor, _StateTensor(place, version_of(tensor), self._step))
                    self._kept[place] = weakref.ref(tensor)

        return ended

    @taps(torch.load)
    def _restores(self, frame: FrameType, *_: Any, **__: Any) -> Ended:
        """A checkpoint is read: whether the code takes the step from it, and not the state of what takes steps."""

        def ended(returned: bool, result: Any) -> None:
            place = self._place(frame.f_back) if returned and type(result) is dict else None
            source = line_at(place) if place is not None else None
            read = keys_read(source.file, assigned(source)) if source is not None else None
            if place is not None and read and any(type(result.get(key)) is int for key in read):
                left = {key: _takes_steps(value) for key, value in result.items() if key not in read}
                self._restored += [(place, (str(key), what)) for key, what in left.items() if what]

        return ended

    def _old(self, tensor: Any) -> _StateTensor | None:
        """What is known of a tensor of a state that was taken before its model was changed."""
        taken = self._taken.of(tensor)
        with isolated():
            return taken if taken and (taken.step, taken.version) != (self._step, version_of(tensor)) else None

    @taps(torch.nn.Module.load_state_dict)
    def _loads(self, frame: FrameType, module: Any, given: Any = None, *_: Any, **__: Any) -> Ended:
        def ended(returned: bool, result: Any) -> None:
            with suppress(Exception):  # a state of the user's own may be anything
                if returned and given and len(result.unexpected_keys) == len(given):
                    self._misses(frame, given, result.missing_keys)

        with suppress(Exception):
            own = {storage_of(tensor): id(tensor) for tensor in parameters(module) if storage_of(tensor) is not None}
            tensors = [tensor for tensor in dict(given).values() if is_real(tensor)]
            if own and set(map(storage_of, tensors)) >= own.keys():
                old = next(filter(None, map(self._old, tensors)), None)
                place = old.place if old is not None else self._place(frame.f_back)
                self._note("moves along" if old else "loads itself", place, tensors=frozenset(own.values()))
            elif own:
                self._loads_same(module, given, own)
        return ended

    def _loads_same(self, module: Any, given: Mapping[str, Any], own: Mapping[Any, int]) -> None:
        """A state is loaded that was computed from one which has moved along: it is what the model has already."""
        kept = ((place, ref()) for place, ref in self._kept.items())
        old = next(
            (place for place, one in kept if one is not None and storage_of(one) in own and self._old(one)), None
        )
        if old is None or not all(map(is_readable, parameters(module))):
            return
        with isolated(), torch.no_grad():
            pairs = [
                (tensor.flatten()[:_ELEMENTS], given[name].flatten()[:_ELEMENTS])
                for name, tensor in module.named_parameters()
            ]
            if all(torch.allclose(*pair) for pair in pairs):
                self._same_loaded[old].add(self._step)
        if len(self._same_loaded[old]) >= 2:
            self._note("moves along", old)

    def _misses(self, frame: FrameType, given: Mapping[str, object], missing: list[str]) -> None:
        key = next(iter(given))
        mine = next((name for name in missing if key.endswith(f".{name}") or name.endswith(f".{key}")), None)
        if missing:
            self._note("loads nothing", self._place(frame.f_back), len(given), key, mine or missing[0])

    @reads("rsub", "sub", "equal", "allclose")
    def _compared(self, call: TorchCall) -> None:
        """Two tensors are compared: whether one is of a state that has moved along with the other."""
        for one, other in call.pairs:
            old = self._old(one)
            new = self._taken.of(other)
            if old and type(other) in PLAIN and _memory(one) == _memory(other) and (new is None or new.step > old.step):
                self._note("moves along", old.place)

    # -- averages ---------------------------------------------------------------------------------------------------------

    @reads("mul")
    def _weighed(self, call: TorchCall) -> None:
        """A tensor times a number, without a graph."""
        for one, factor in call.pairs:
            if type(factor) is float and 0 < factor < 1 and type(one) in PLAIN and not call.result.requires_grad:
                self._parts.put(call.result, _Weighed(_memory(one), storage_of(one), factor))

    @reads("add")
    def _averaged(self, call: TorchCall) -> None:
        """Two parts that make a whole: whether both are of one tensor."""
        one, other = map(self._parts.of, call.pairs[0])
        if one is None or other is None or not isclose(one.factor + other.factor, 1, rel_tol=1e-6):
            return
        if one.memory == other.memory and one.storage in self._trained:
            trained = frozenset([self._trained[one.storage]])
            self._note("changes by itself", call.place, "an average", tensors=trained)

    @reads("copy", "lerp", "add")
    def _changed(self, call: TorchCall) -> None:
        """A tensor is changed in place: whether by itself."""
        first, second = call.pairs[0]
        if type(first) not in PLAIN or type(second) not in PLAIN or not call.in_place:
            return
        if call.frame.f_code.co_name == "_load_from_state_dict":  # which is told of as a whole
            return
        if _memory(first) == _memory(second) is not None and (call.name != "add" or call.options.get("alpha", 1) != 1):
            self._note("changes by itself", call.place, f"{call.name}_", tensors=frozenset([id(first)]))


def _takes_steps(state: object) -> str:
    """What a state is one of: an optimizer that keeps something from step to step, or a scheduler; "" for others."""
    if type(state) is dict and "param_groups" in state:
        return "optimizer" if state.get("state") else ""
    return "scheduler" if type(state) is dict and "last_epoch" in state else ""


def _memory(tensor: torch.Tensor) -> object:
    """Where a tensor begins in memory, and its shape; None where it has none."""
    storage = storage_of(tensor)
    return (storage, tensor.storage_offset(), tensor.shape) if storage is not None and storage[1] else None


def second_names(variables: Variables) -> Iterator[Alias]:
    """Modules of the user's that have two names in one place, where a line gave them the second one."""
    held = [
        value
        for space in variables
        for value in space.values()
        if not any(is_a(value, kind) for kind in (type, ModuleType, FunctionType))
    ]
    inside = (own_attributes(value) for value in held)
    for space in [*variables, *(attributes | attributes.get("_modules", {}) for attributes in inside)]:
        first: dict[int, str] = {}
        for name, value in space.items():
            if is_a(value, torch.nn.Module) and first.setdefault(id(value), name) != name:
                yield from _second(value, files_of(variables), first[id(value)], name)


def _second(module: torch.nn.Module, files: Sequence[str], *names: str) -> Iterator[Alias]:
    for file in files:
        given = second_name(file, *names)
        if given is not None:
            tensors = frozenset(map(id, parameters(module)))
            yield Alias(given[:2], given[2], tensors, follows(file, *names))


def under_names(misuses: Iterable[Misuse], aliases: Sequence[Alias]) -> Iterator[Misuse]:
    """The same misuses: for those of a module with two names, where it got the second one."""
    named = {alias: alias.follows for alias in aliases}
    for misuse in misuses:
        alias = next((alias for alias in aliases if misuse.tensors & alias.tensors), None)
        if alias is None or misuse.kind not in ("changes by itself", "loads itself"):
            yield misuse
        else:
            named[alias] = True
    yield from (Misuse("second name", one.source, one.names, names=one.names) for one, told in named.items() if told)
