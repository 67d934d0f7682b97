"""What is known of a model that was not recorded: its modules, and who owns which leaf of a graph. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Registered(NamedTuple):
    """One module that can be called. Modules are numbered so that each comes before those inside it, which follow at once."""

    path: str
    type: str
    base: str  # the class of torch.nn whose `forward` it runs: "Sequential"; "" when it has a forward of its own
    parent: int | None
    parameters: int | None = None
    takes_labels: bool = False  # whether its forward is given what to compute a loss with
    frozen: bool = False  # whether it holds, itself, parameters that need no gradient


class Ownership(NamedTuple):
    """The modules of a model, and by leaf of a graph (id of the AccumulateGrad node) those that hold its parameter."""

    modules: tuple[Registered, ...]
    owners: Mapping[int, tuple[int, ...]]
