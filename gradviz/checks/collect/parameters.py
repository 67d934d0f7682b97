"""Finds parameters that are not what the code means: tied by a copy, frozen by a wrong name or in vain, in the wrong mode."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import product
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.utils import stateless

from gradviz.checks.collect.calls import ByIdentity, Observer, TorchCall, reads, taps
from gradviz.checks.collect.lines import Models, Variables, line_at
from gradviz.checks.collect.numbers import TensorRef, is_readable
from gradviz.checks.context import Parameter
from gradviz.checks.record import Mistyped, Thawed, Tie
from gradviz.checks.words import Names
from gradviz.graph import SourceLine
from gradviz.packages import Place
from gradviz.source.search import calls_method, only_compares, passes, sets_attribute
from gradviz.variables.objects import joined, own_attributes, submodules
from gradviz.walker.tensors import storage_of

_ALIKE = 0.8  # from which an attribute's name counts as `requires_grad` mistyped
Pair = tuple[tuple[str, str], torch.Tensor, torch.Tensor, bool]
"""Two names and their parameters, and whether these share their memory."""


def pairs(name: str, model: torch.nn.Module) -> Iterator[Pair]:
    """Distinct parameters of a model that share their memory, or of which one is an embedding's and a copy of a linear layer's."""
    by_storage: dict[object, tuple[str, torch.Tensor]] = {}
    embeddings: list[tuple[str, torch.Tensor]] = []
    linears: list[tuple[str, torch.Tensor]] = []
    for path, module in submodules(model):
        for key, tensor in module._parameters.items():
            if type(tensor) is not torch.nn.Parameter or not is_readable(tensor):
                continue
            named = joined(joined(name, path), key), tensor
            storage = storage_of(tensor)
            if storage is not None and storage[1]:
                place = storage[0], tensor.storage_offset(), tensor.shape
                other = by_storage.setdefault(place, named)
                if other[1] is not tensor:
                    yield (other[0], named[0]), other[1], tensor, True
            if key == "weight" and isinstance(module, torch.nn.Embedding):
                embeddings.append(named)
            elif key == "weight" and isinstance(module, torch.nn.Linear):
                linears.append(named)
    for (embedding, first), (linear, second) in product(embeddings, linears):
        if _equal(first, second):
            yield (embedding, linear), first, second, False


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors have one shape and the same numbers, and not all the same one."""
    if first is second or first.shape != second.shape:
        return False
    with torch.no_grad():
        few, others = first.detach().flatten()[:8], second.detach().flatten()[:8]
        if few.device != others.device or few.dtype != others.dtype or not torch.equal(few, others):
            return False
        return bool((few != few[0]).any()) and torch.equal(first.detach(), second.detach())


def still_tied(alike: Iterable[Pair], variables: Variables) -> Iterator[Tie]:
    """What has become of pairs."""
    for names, first, second, shared in alike:
        apart = not shared and not torch.equal(first.detach(), second.detach())
        last = ".".join(names[1].split(".")[-2:])
        # which unties what was tied
        loads = (at for file in files_of(variables) for at in passes(file, "assign", "True"))
        source = next(loads, None) or _assigned_in(variables, last, f"{last}.data") if shared or apart else None
        yield Tie(names, shared, apart, source)


def mistyped(
    models: Models, parameters: Sequence[tuple[Parameter, torch.Tensor]], variables: Variables
) -> Iterator[Mistyped]:
    """Attributes of parameters and modules that are False, and that torch does not read."""
    by_attribute: dict[tuple[str, bool], list[str]] = {}
    for parameter, tensor in parameters:
        for key in _off(own_attributes(tensor)):
            if key != "requires_grad" and tensor.requires_grad:
                by_attribute.setdefault((key, False), []).append(parameter.names[0])
    for name, model in models:
        for path, module in submodules(model):
            for key in _off(module.__dict__):
                if not key.startswith("_") and any(weight.requires_grad for weight in module.parameters()):
                    by_attribute.setdefault((key, True), []).append(joined(name, path))
    compared = next(filter(None, (only_compares(file) for file in files_of(variables))), None)
    if compared is not None:
        yield Mistyped((), "requires_grad ==", False, compared)
    for (key, of_module), names in by_attribute.items():
        yield Mistyped(tuple(names), key, of_module, _assigned_in(variables, key))


def _assigned_in(variables: Variables, *endings: str) -> SourceLine | None:
    """Where the code around the call assigns to something that ends so."""
    return next(filter(None, (sets_attribute(file, *endings) for file in files_of(variables))), None)


def only_eval(variables: Variables, model: str) -> SourceLine | None:
    """Where the code calls eval() of a model by its name, when nothing in the same file calls train()."""
    for file in files_of(variables):
        here = [line for called, line in calls_method(file, "eval") if called == model]
        if here and not list(calls_method(file, "train")):
            return here[0]
    return None


def files_of(variables: Variables) -> list[str]:
    """The files that variables belong to."""
    return list(dict.fromkeys(str(space["__file__"]) for space in variables if type(space.get("__file__")) is str))


def _off(attributes: Mapping[str, object]) -> list[str]:
    """Attributes that are False, and named as `requires_grad` or nearly so."""
    return [
        name
        for name, value in attributes.items()
        if value is False and SequenceMatcher(None, name, "requires_grad").ratio() >= _ALIKE
    ]


MOST = 100_000
"""Switches that are noted."""


class _Switched(NamedTuple):
    ref: TensorRef
    on: bool
    place: Place


class Switches(Observer):
    """Of one run, until its first backward call."""

    def _begin(self) -> None:
        self._noted: list[_Switched] = []

    @reads("requires_grad", "set")
    def _switched(self, call: TorchCall) -> None:
        """A function of torch has set `requires_grad` of a parameter, or something else."""
        sets = call.name == "requires_grad" or getattr(call.function, "__self__", None) is torch.Tensor.requires_grad
        tensor, place = call.first, call.place if sets else None
        if type(tensor) is torch.nn.Parameter and place is not None and len(self._noted) < MOST:
            self._noted.append(_Switched(weakref.ref(tensor), tensor.requires_grad, place))

    def off_at(self, tensor: torch.Tensor) -> SourceLine | None:
        """The last line that froze a parameter."""
        return next((line_at(place) for ref, on, place in reversed(self._noted) if not on and ref() is tensor), None)

    def in_vain(self, names: Mapping[int, Names]) -> Iterator[Thawed]:
        """Lines whose freezing another line has undone as a whole, and with it for more. `names` are by identity."""
        lines: dict[tuple[bool, Place], dict[int, int]] = {}  # the parameters that each switched, on or off, and when
        last: dict[int, tuple[bool, Place]] = {}
        for when, (ref, on, place) in enumerate(self._noted):
            tensor = ref()
            if tensor is not None and id(tensor) in names:
                last[id(tensor)] = on, place
                lines.setdefault((on, place), {})[id(tensor)] = when
        for (on, line), members in lines.items():
            undone = {last[key] for key in members}
            if on or len(undone) != 1:
                continue
            again, other = undone.pop()
            later = lines[again, other]
            undoes = again and other != line and len(later) > len(members)
            if undoes and all(later[key] > when for key, when in members.items()):
                yield Thawed(tuple(names[key][0] for key in members), line_at(line), line_at(other))


class Replaced(Observer):
    """The parameters that `torch.func.functional_call` has run their module without, and the line that called it, of one run."""

    def _begin(self) -> None:
        self._noted = ByIdentity[Place]()
        self._calls = ByIdentity[tuple[Any, ...]]()  # of modules, with the names given

    @taps(stateless._functional_call)
    def _called(self, frame: FrameType, module: torch.nn.Module, given: Any, *_: Any, **__: Any) -> None:
        with suppress(Exception):
            names, place = tuple(given), self._place(frame)
            if place is None or self._calls.of(module) == names:
                return
            self._calls.put(module, names)
            for path, owner in submodules(module):
                for key, tensor in owner._parameters.items():
                    name = joined(path, key)
                    if tensor is not None and name in given and given[name] is not tensor:
                        self._noted.put(tensor, place)

    def at(self, tensor: torch.Tensor) -> SourceLine | None:
        """The line that ran a parameter's module with something else in its place; None when none did."""
        place = self._noted.of(tensor)
        return line_at(place) if place is not None else None
