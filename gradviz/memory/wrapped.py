"""Puts a checkpoint plan to work: the modules that it names run in `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from gradviz.errors import FormatError
from gradviz.memory.checkpoint import Advice


def apply_checkpoints(model: torch.nn.Module, plan: Advice | Iterable[str]) -> Callable[[], None]:
    """Run the modules that a plan names in non-reentrant checkpoints from now on. Gradients stay the same.

    Args:
        model: the one that was recorded, or any with the same structure.
        plan: from `checkpoint_plan`, or paths of modules, below the model or with the name of its variable in front.

    Returns a function that takes the checkpoints off again. Names of parameters, the state dict and hooks stay as they are.
    Raises FormatError for a path that is no module of the model, before anything is changed.

    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> undo = apply_checkpoints(net, ["0"])
    >>> net(torch.ones(1, 2)).sum().backward()
    >>> undo()

    Source: https://docs.pytorch.org/docs/stable/checkpoint.html
    """
    paths = [step.path for step in plan.steps] if isinstance(plan, Advice) else list(plan)
    known = dict(model.named_modules())
    modules = [_found(known, path) for path in paths]
    before = {module: vars(module).get("forward") for module in modules}
    for module in before:
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)

    def undo() -> None:
        for module, forward in before.items():
            if forward is None:
                vars(module).pop("forward", None)
            else:
                module.forward = forward

    return undo


def _found(known: dict[str, Any], path: str) -> torch.nn.Module:
    """The module at a path, of which the start may be the caller's name for the model."""
    parts = path.split(".")
    for inner in (path, ".".join(parts[1:])):
        if inner in known:
            module: torch.nn.Module = known[inner]
            return module
    raise FormatError(f"the model has no module {path!r}. It has: {', '.join(filter(None, list(known)[:9]))}, ...")
