"""Which module owns each leaf, for a graph that was not recorded.

Gives scopes to the leaves only. `gradviz.analysis.infer` concludes from them where the operations belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Literal

import torch

from gradviz.capture.attribution import Found, Places
from gradviz.capture.module_calls import elements
from gradviz.capture.objects import joined, members, parameters
from gradviz.graph import Scope

_NEVER_CALLED = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)


class Owned:
    """Attribution by ownership. `modules` are the outermost ones with their paths, the first that owns a parameter wins."""

    kind: Literal[""] = ""  # the scopes of operations are still to be inferred

    def __init__(self, modules: Sequence[tuple[str, torch.nn.Module]]) -> None:
        self._owner: dict[int, torch.nn.Module] = {}  # by parameter
        self._around: dict[torch.nn.Module, torch.nn.Module | None] = {}
        self._paths: dict[torch.nn.Module, str] = {}
        for path, module in modules:
            self._add(path, module)

    def places(self, found: Found) -> Places:
        owners = {node: self._owner.get(id(variable)) for node, variable in found.variables.items()}
        used: set[torch.nn.Module] = set()
        for owner in owners.values():
            while owner is not None and owner not in used:
                used.add(owner)
                owner = self._around[owner]
        scopes: dict[torch.nn.Module, int] = {}
        for module in self._paths:  # outer modules come before inner ones
            if module in used:
                scopes[module] = len(scopes)
        scope_of: list[int | None] = [None] * len(found.sequences)
        for node, owner in owners.items():
            scope_of[node] = scopes[owner] if owner is not None else None
        return Places(tuple(self._scope(module, scopes) for module in scopes), scope_of, repeat(None), repeat(None))

    def _add(self, path: str, root: torch.nn.Module) -> None:
        stack: list[tuple[str, torch.nn.Module, torch.nn.Module | None]] = [(path, root, None)]
        while stack:
            path, module, around = stack.pop()
            if module in self._paths:
                continue
            called = module if around is None or not issubclass(type(module), _NEVER_CALLED) else around
            if called is module:
                self._paths[module] = path
                self._around[module] = around
            for _, parameter in members(module, "_parameters"):
                self._owner.setdefault(id(parameter), called)
            children = [(joined(path, name), child, called) for name, child in members(module, "_modules")]
            stack.extend(reversed(children))

    def _scope(self, module: torch.nn.Module, scopes: dict[torch.nn.Module, int]) -> Scope:
        around = self._around[module]
        return Scope(
            path=self._paths[module],
            type=type(module).__name__,
            call=1,
            parent=scopes[around] if around is not None else None,
            parameters=elements(parameters(module)),
        )
