"""Which modules own each leaf, for a graph that was not recorded.

Gives no scopes. `gradviz.inference` concludes from who owns what, in which module every operation ran.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Literal

import torch

from gradviz.graph.scopes import Ownership, Registered, around
from gradviz.variables.objects import children, is_compiled, members, parameters, unwrapped
from gradviz.walker.description import BareGraph, Places
from gradviz.walker.tensors import elements

_HOLDERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)
_TORCHS = ("torch.nn.modules.", "torch.nn.utils.parametrize")
_LABELS = {"label", "labels", "targets"}  # arguments of a forward that computes a loss


class OwnershipAttribution:
    """Attribution by ownership. `modules` are the outermost ones with their paths. Holds no tensor once a walk has asked."""

    kind: Literal[""] = ""  # the scopes of operations are still to be inferred

    def __init__(self, modules: Sequence[tuple[str, torch.nn.Module]]) -> None:
        self._registered: list[Registered] = []
        self._owners: dict[int, list[int]] = {}  # by parameter
        self._seen: set[torch.nn.Module] = set()
        self.ownership = Ownership((), {})
        """What the walk found: there once it has asked for places."""
        for path, module in modules:
            self._add(path, module)

    def places(self, bare: BareGraph) -> Places:
        owners = {node: tuple(self._owners.get(id(variable), ())) for node, variable in bare.variables.items()}
        self.ownership = Ownership(tuple(self._registered), {node: of for node, of in owners.items() if of})
        return Places((), repeat(None, len(bare.sequences)), repeat(None), repeat(None))

    def _add(self, path: str, root: torch.nn.Module) -> None:
        below = _under(path, root, self._seen)
        number: dict[int | None, int] = {}
        for i in _outer_first(below):
            entry = below[i]
            if entry.called:
                number[i] = len(self._registered)
                self._registered.append(_registered(entry.path, entry.module, number.get(entry.parent)))
            elif entry.parent in number:
                number[i] = number[entry.parent]
            for _, parameter in members(entry.module, "_parameters"):
                if i in number:
                    self._owners.setdefault(id(parameter), []).append(number[i])


class _Under:
    """A module below a root: under which path it was found first, and the place in the list of the one that calls it."""

    __slots__ = ("called", "module", "parent", "path")

    def __init__(self, path: str, module: torch.nn.Module, parent: int | None) -> None:
        self.path, self.module, self.parent = path, module, parent
        self.called = parent is None or not _never_called(type(module))


def _under(path: str, root: torch.nn.Module, seen: set[torch.nn.Module]) -> list[_Under]:
    """All modules below a root that were not seen yet, each once.

    A sequence calls what it holds. So a module that is an attribute of another one, and in a sequence inside that one, too, is
    called by the sequence.
    """
    below: list[_Under] = []
    place: dict[torch.nn.Module, int] = {}
    stack: list[tuple[str, torch.nn.Module, int | None]] = [(path, root, None)]
    while stack:
        path, module, parent = stack.pop()
        module = unwrapped(module)
        if is_compiled(module):
            stack.extend((at, child, parent) for at, child in children(path, module))
            continue
        if module in place and parent is not None and _is_sequence(below[parent].module):
            inside = [*around(below, parent)]
            if place[module] not in inside and below[place[module]].parent in inside:
                below[place[module]].parent = parent
        if module in seen:
            continue
        seen.add(module)
        place[module] = len(below)
        below.append(_Under(path, module, parent))
        stack.extend((at, child, place[module]) for at, child in reversed(children(path, module)))
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


def _registered(path: str, module: torch.nn.Module, parent: int | None) -> Registered:
    kind = type(module)
    runs = next((cls for cls in kind.__mro__ if "forward" in vars(cls)), torch.nn.Module)
    is_torchs = runs.__module__.startswith(_TORCHS) and runs is not torch.nn.Module
    base = runs.__name__ if is_torchs else ""
    if kind.__name__ == "NonDynamicallyQuantizableLinear":  # attention multiplies by its weight and never calls it
        base = kind.__name__
    frozen = any(
        issubclass(type(parameter), torch.Tensor) and not parameter.requires_grad
        for _, parameter in members(module, "_parameters")
    )
    return Registered(path, kind.__name__, base, parent, elements(parameters(module)), _takes_labels(runs), frozen)


def _never_called(kind: type) -> bool:
    """Whether a module only holds others. A list of parametrizations is a list, too, but it has a forward."""
    return issubclass(kind, _HOLDERS) and not any(
        "forward" in vars(cls) for cls in kind.__mro__[:-1] if cls is not torch.nn.Module
    )


def _takes_labels(kind: type) -> bool:
    try:
        return not _LABELS.isdisjoint(inspect.signature(kind.forward).parameters)  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError):
        return False
