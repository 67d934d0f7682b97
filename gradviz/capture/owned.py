"""Which modules own each leaf, for a graph that was not recorded.

Gives no scopes. `gradviz.analysis.infer` concludes from who owns what, in which module every operation ran.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import repeat
from typing import Literal

import torch

from gradviz.capture.attribution import Found, Places
from gradviz.capture.calls import elements
from gradviz.capture.objects import joined, members, parameters
from gradviz.registered import Ownership, Registered

_HOLDERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)
_LABELS = {"label", "labels", "targets"}  # arguments of a forward that computes a loss


class Owned:
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

    def places(self, found: Found) -> Places:
        owners = {node: tuple(self._owners.get(id(variable), ())) for node, variable in found.variables.items()}
        self.ownership = Ownership(tuple(self._registered), {node: of for node, of in owners.items() if of})
        return Places((), repeat(None, len(found.sequences)), repeat(None), repeat(None))

    def _add(self, path: str, root: torch.nn.Module) -> None:
        stack: list[tuple[str, torch.nn.Module, int | None]] = [(path, root, None)]
        while stack:
            path, module, around = stack.pop()
            if module in self._seen:
                continue
            self._seen.add(module)
            called = around
            if around is None or not _never_called(type(module)):
                called = len(self._registered)
                self._registered.append(_registered(path, module, around))
            for _, parameter in members(module, "_parameters"):
                if called is not None:
                    self._owners.setdefault(id(parameter), []).append(called)
            children = [(joined(path, name), child, called) for name, child in members(module, "_modules")]
            stack.extend(reversed(children))


def _registered(path: str, module: torch.nn.Module, parent: int | None) -> Registered:
    kind = type(module)
    runs = next((one for one in kind.__mro__ if "forward" in vars(one)), torch.nn.Module)
    is_torchs = runs.__module__.startswith("torch.nn.modules.") and runs is not torch.nn.Module
    base = runs.__name__ if is_torchs else ""
    if kind.__name__ == "NonDynamicallyQuantizableLinear":  # attention multiplies by its weight and never calls it
        base = kind.__name__
    return Registered(path, kind.__name__, base, parent, elements(parameters(module)), _takes_labels(runs))


def _never_called(kind: type) -> bool:
    """Whether a module only holds others. A list of parametrizations is a list, too, but it has a forward."""
    return issubclass(kind, _HOLDERS) and not any(
        "forward" in vars(one) for one in kind.__mro__[:-1] if one is not torch.nn.Module
    )


def _takes_labels(kind: type) -> bool:
    try:
        return not _LABELS.isdisjoint(inspect.signature(kind.forward).parameters)  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError):
        return False
