"""Who owns which parameter: what the inference of modules starts from, read from the
caller's modules during a walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import BuiltinFunctionType, FunctionType
from typing import Any, Literal

import torch

from gradviz.graph.origins import Ownership, Registered, around, outer_paths
from gradviz.inference.forwards import steps_of
from gradviz.inference.steps import ForwardStep, keys_of
from gradviz.variables.objects import (
    class_attribute,
    is_compiled,
    joined,
    members,
    once,
    own_attributes,
    paths_with_ancestors,
)
from gradviz.walker.places import BareGraph, Places
from gradviz.walker.tensors import elements_of_each

_TORCHS = ("torch.nn.modules.", "torch.nn.utils.parametrize")


class OwnershipAttribution:
    """Attribution by ownership. Holds no tensor and no module once a walk has asked."""

    kind: Literal[""] = ""  # the scopes of operations are still to be inferred

    def __init__(self) -> None:
        self._registered: list[Registered] = []
        self._mentioned: list[set[str]] = []
        self._owners: dict[int, list[int]] = {}  # by parameter
        self._names: dict[int, str] = {}
        self._seen: set[torch.nn.Module] = set()
        self.ownership = Ownership((), {})
        """What the walk found: there once it has asked for places."""

    def places(self, bare: BareGraph) -> Places:
        for path, module in bare.modules:
            self._add(path, module)

        # the modules must not live longer than the walk
        self._seen.clear()
        owners = {
            node: tuple(self._owners.get(id(variable), ()))
            for node, variable in bare.variables.items()
        }
        names = {
            node: self._names.get(id(variable), "")
            for node, variable in bare.variables.items()
        }
        self.ownership = Ownership(
            tuple(self._registered),
            {node: of for node, of in owners.items() if of},
            names,
        )

        return Places((), repeat(None, len(bare.sequences)), repeat(None), repeat(None))

    def _add(self, path: str, root: torch.nn.Module) -> None:
        below, counts = _under(path, root, self._seen), elements_of_each(root)
        number: dict[int | None, int] = {}
        for i in _outer_first(below):
            entry = below[i]
            outer = number.get(entry.parent)
            key = self._inside(outer, entry.held)
            if entry.called and not self._is_only_read(outer, key):
                number[i] = len(self._registered)
                count = counts[id(entry.module)]
                module = _registered(entry, outer, count, key)
                self._registered.append(module)
                self._mentioned.append(_mentioned(module.steps or ()))
            elif outer is not None:
                # a ModuleList is never called: its parameters count for the module that
                # holds it
                number[i] = outer

            for name, parameter in members(entry.module, "_parameters"):
                if i in number:
                    self._owners.setdefault(id(parameter), []).append(number[i])
                    inner = self._inside(number[i], joined(entry.path, name))
                    self._names[id(parameter)] = inner

    def _inside(self, outer: int | None, path: str) -> str:
        """A path as the module around may write it."""
        if outer is None:
            return path
        return path.removeprefix(self._registered[outer].path).removeprefix(".")

    def _is_only_read(self, outer: int | None, key: str) -> bool:
        """Whether the module around reads what this one holds, its weight or what is in
        it, and never calls it.
        """
        if outer is None:
            return False
        keys, mentioned = keys_of(key), self._mentioned[outer]
        is_called = not mentioned.isdisjoint(keys)
        return not is_called and any(f"{key}." in mentioned for key in keys[:2])


def _mentioned(steps: Sequence[tuple[str, str]]) -> set[str]:
    """What steps name of what a module holds, and with a dot behind it what they read
    something of.
    """
    paths = {child for child, _ in steps}
    return paths | {f"{outer}." for path in paths for outer in outer_paths(path)[:-1]}


@dataclass(slots=True)
class _Under:
    """A module below a root: under which path it was found first, and the place in the
    list of the one that calls it.
    """

    path: str
    module: torch.nn.Module
    parent: int | None
    held: str  # the path under which that one holds it

    @property
    def called(self) -> bool:
        """Not one that only holds others. A list of parametrizations is a list, too,
        but it has a forward.
        """
        kind = type(self.module)
        return _runs(kind) is not torch.nn.Module


@once
def _runs(kind: type) -> type:
    """The class that defines what runs when such a module is called."""
    return next(cls for cls in kind.__mro__ if "forward" in vars(cls))


def _under(
    path: str, root: torch.nn.Module, seen: set[torch.nn.Module]
) -> list[_Under]:
    """All modules below a root that were not seen yet, each once.

    A sequence calls what it holds. So a module that is an attribute of another one, and
    in a sequence inside that one, too, is called by the sequence.
    """
    below: list[_Under] = []
    place: dict[int, int] = {}
    for inner, module, ancestors in paths_with_ancestors(root):
        # what is compiled has the path of its wrapper, which calls nothing itself
        if is_compiled(module):
            continue
        outer = [place[one] for one in ancestors[:-1] if one in place]
        parent = outer[-1] if outer else None
        known = place.get(id(module))
        if known is None and module not in seen:
            seen.add(module)
            place[id(module)] = len(below)
            found = joined(path, inner)
            below.append(_Under(found, module, parent, found))
        elif known is not None and parent is not None:
            inside = [*around(below, parent)]
            is_sequence = _is_sequence(below[parent].module)
            if is_sequence and known not in inside and below[known].parent in inside:
                # found as an attribute first, but the sequence is what calls it
                below[known].parent = parent
                below[known].held = joined(path, inner)

    return below


def _outer_first(below: Sequence[_Under]) -> Iterator[int]:
    """Each module before those inside it, which follow at once."""
    inside: dict[int | None, list[int]] = {}
    for i, entry in enumerate(below):
        inside.setdefault(entry.parent, []).append(i)
    stack = inside.get(None, [])[::-1]
    while stack:
        i = stack.pop()
        yield i
        stack.extend(reversed(inside.get(i, [])))


def _is_sequence(module: torch.nn.Module) -> bool:
    return getattr(type(module), "forward", None) is torch.nn.Sequential.forward


def _registered(
    entry: _Under, outer: int | None, count: int | None, key: str
) -> Registered:
    kind = type(entry.module)
    runs = _runs(kind)
    is_torchs = runs.__module__.startswith(_TORCHS) and runs is not torch.nn.Module
    # by the class whose forward runs: a subclass of Linear is a Linear
    base = runs.__name__ if is_torchs else ""
    steps = _steps(entry.module)
    return Registered(entry.path, kind.__name__, base, outer, count, key, steps)


def _steps(module: torch.nn.Module) -> tuple[ForwardStep, ...] | None:
    """What a forward does. A sequence calls what it holds."""
    held, kind = members(module, "_modules"), type(module)
    if _is_sequence(module):
        return tuple(ForwardStep(name) for name, _ in held)
    if not held and _runs(kind).__module__.startswith(_TORCHS):
        own = own_attributes(module)
        is_off = not own.get("training", True) or own.get("p", 1) == 0
        return () if issubclass(kind, _NOISE) and is_off else None
    steps = _read_steps(kind)
    return steps and _with_values(module, steps)


_NOISE = (torch.nn.modules.dropout._DropoutNd, torch.nn.Identity)


def _with_values(
    module: torch.nn.Module, steps: tuple[ForwardStep, ...]
) -> tuple[ForwardStep, ...]:
    """Without what is None in this module, and with the names of functions that it
    holds.
    """
    own: dict[str, Any] = {
        **own_attributes(module),
        **dict(members(module, "_modules")),
    }
    names = {
        name: _name_of(value)
        for name, value in own.items()
        if value is None or isinstance(value, _FUNCTIONS)
    }
    if names.keys().isdisjoint(child for child, _ in steps):
        return steps
    return tuple(
        ForwardStep("", names[child]) if child in names else ForwardStep(child, name)
        for child, name in steps
    )


def _name_of(value: Any) -> str:
    """How code would call a function; "?" where that is nobody's but the user's."""
    if value is None:
        return "none"
    is_torchs = str(value.__module__).partition(".")[0] == "torch"
    return value.__name__ if is_torchs else "?"


_FUNCTIONS = (FunctionType, BuiltinFunctionType)


@once
def _read_steps(kind: type) -> tuple[ForwardStep, ...] | None:
    return steps_of(kind, class_attribute(kind, "forward"))
