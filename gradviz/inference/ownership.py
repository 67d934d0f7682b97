"""Who owns which parameter: what the inference of modules starts from, read from the
caller's modules during a walk.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import torch

from gradviz.graph.origins import Ownership, Registered, around
from gradviz.variables.objects import (
    class_attribute,
    is_compiled,
    joined,
    members,
    once,
    paths_with_ancestors,
)
from gradviz.walker.places import BareGraph, Places
from gradviz.walker.tensors import elements_of_each

_HOLDERS = (
    torch.nn.ModuleList,
    torch.nn.ModuleDict,
    torch.nn.ParameterList,
    torch.nn.ParameterDict,
)
_TORCHS = ("torch.nn.modules.", "torch.nn.utils.parametrize")
_LABELS = {"label", "labels", "targets"}  # arguments of a forward that computes a loss


class OwnershipAttribution:
    """Attribution by ownership. Holds no tensor and no module once a walk has asked."""

    kind: Literal[""] = ""  # the scopes of operations are still to be inferred

    def __init__(self) -> None:
        self._registered: list[Registered] = []
        self._owners: dict[int, list[int]] = {}  # by parameter
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
        self.ownership = Ownership(
            tuple(self._registered), {node: of for node, of in owners.items() if of}
        )

        return Places((), repeat(None, len(bare.sequences)), repeat(None), repeat(None))

    def _add(self, path: str, root: torch.nn.Module) -> None:
        below, counts = _under(path, root, self._seen), elements_of_each(root)
        number: dict[int | None, int] = {}
        for i in _outer_first(below):
            entry = below[i]
            if entry.called:
                number[i] = len(self._registered)
                self._registered.append(
                    _registered(
                        entry.path,
                        entry.module,
                        number.get(entry.parent),
                        counts[id(entry.module)],
                    )
                )
            elif entry.parent in number:
                # a ModuleList is never called: its parameters count for the module that
                # holds it
                number[i] = number[entry.parent]

            for _, parameter in members(entry.module, "_parameters"):
                if i in number:
                    self._owners.setdefault(id(parameter), []).append(number[i])


@dataclass(slots=True)
class _Under:
    """A module below a root: under which path it was found first, and the place in the
    list of the one that calls it.
    """

    path: str
    module: torch.nn.Module
    parent: int | None

    @property
    def called(self) -> bool:
        """Not one that only holds others. A list of parametrizations is a list, too,
        but it has a forward.
        """
        kind = type(self.module)
        return (
            self.parent is None
            or not issubclass(kind, _HOLDERS)
            or _runs(kind) is not torch.nn.Module
        )


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
            below.append(_Under(joined(path, inner), module, parent))
        elif known is not None and parent is not None:
            inside = [*around(below, parent)]
            is_sequence = _is_sequence(below[parent].module)
            if is_sequence and known not in inside and below[known].parent in inside:
                # found as an attribute first, but the sequence is what calls it
                below[known].parent = parent

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
    path: str, module: torch.nn.Module, parent: int | None, count: int | None
) -> Registered:
    kind = type(module)
    runs = _runs(kind)
    is_torchs = runs.__module__.startswith(_TORCHS) and runs is not torch.nn.Module
    # by the class whose forward runs: a subclass of Linear is a Linear
    base = runs.__name__ if is_torchs else ""
    # attention multiplies by its weight and never calls it
    if kind.__name__ == "NonDynamicallyQuantizableLinear":
        base = kind.__name__

    frozen = any(
        issubclass(type(parameter), torch.Tensor) and not parameter.requires_grad
        for _, parameter in members(module, "_parameters")
    )

    return Registered(
        path, kind.__name__, base, parent, count, _takes_labels(runs), frozen
    )


@once
def _takes_labels(kind: type) -> bool:
    # a scripted module's would refuse to be asked for
    forward: Any = class_attribute(kind, "forward")
    code = getattr(inspect.unwrap(forward), "__code__", None)
    return code is not None and not _LABELS.isdisjoint(
        code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    )
