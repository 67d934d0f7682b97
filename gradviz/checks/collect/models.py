"""Reads models and optimizers: which there are, their parameters with the nodes of the
graph, how their modules ran, and where a module keeps what it does not list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import torch

from gradviz.checks.call import Home, Parameter
from gradviz.checks.collect.behind import Models, Variables
from gradviz.cuts.classes import made_at
from gradviz.explanation import optimizers
from gradviz.graph import Leaf
from gradviz.graph.origins import outer_paths
from gradviz.recording.record import ModuleRun, Recording
from gradviz.run.outputs import LiveOutputs
from gradviz.variables.objects import (
    every_path,
    is_a,
    joined,
    members,
    parameters as own_parameters,
)
from gradviz.walker.names import gathered, outermost_modules, registered
from gradviz.walker.walk import Walked


class Reading(NamedTuple):
    """The live objects of one call: what was walked, the nodes of leaves by identity,
    and which models and optimizers there are.
    """

    walked: Walked
    live: LiveOutputs
    leaf_of: Mapping[int, int]
    models: Models
    optimizers: Sequence[tuple[str, torch.optim.Optimizer]]
    parameters: Sequence[tuple[Parameter, torch.Tensor]]


def read_objects(
    walked: Walked,
    live: LiveOutputs,
    model: torch.nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
    replaced: Collection[torch.nn.Module],
) -> Reading:
    """What there is at a call. `model` and `optimizer` as the user gave them; without,
    the variables are searched. `functional_call` ran the modules that are `replaced`.
    """
    leaf_of = {id(tensor): node for node, tensor in walked.variables.items()}
    models = _models(model, live.variables)
    found = [("optimizer", optimizer)] if optimizer else optimizers(live.variables)
    parameters = _parameters(models, leaf_of, live.recording, replaced)
    return Reading(walked, live, leaf_of, models, found, parameters)


def _models(model: torch.nn.Module | None, variables: Variables) -> Models:
    outermost = outermost_modules(model, variables)
    if model is not None:
        return outermost[:1]
    inside = tuple(f"{name}." for name, _ in outermost)
    # a layer in a plain list of another module is in none of that one's tables
    return [
        (name, model)
        for name, model in outermost
        if not name.startswith(inside) and own_parameters(model)
    ]


def _parameters(
    models: Models,
    leaf_of: Mapping[int, int],
    recording: Recording | None,
    replaced: Collection[torch.nn.Module],
) -> list[tuple[Parameter, torch.Tensor]]:
    """Each parameter once, under all its names, and the live tensor."""
    found: dict[int, tuple[Parameter, torch.Tensor]] = {}

    for i, (prefix, model) in enumerate(models):
        modules = dict(every_path(model))
        whole_of = {path: (shard, whole) for path, shard, whole in gathered("", model)}
        for path, tensor, kind in registered("", model):
            if kind != "parameter":
                continue
            # the shard has the gradient, the graph the whole
            tensor, leaf = whole_of.get(path, (tensor, tensor))
            key, name = id(tensor), joined(prefix, path)
            if key in found:
                names = (*found[key][0].names, name)
                found[key] = found[key][0]._replace(names=names), tensor
                continue

            owner = path.rpartition(".")[0]
            around = ["", *outer_paths(owner)]
            run = ModuleRun(-1)
            if recording is not None:
                run = recording.run_of(modules[owner])
            parameter = Parameter(
                names=(name,),
                module=joined(prefix, owner),
                type=type(modules[owner]).__name__,
                model=i,
                requires_grad=tensor.requires_grad,
                has_grad=tensor.grad is not None,
                node=leaf_of.get(id(leaf)),
                sharded=leaf is None,
                run=run,
                replaced=any(modules[each] in replaced for each in around),
            )
            found[key] = parameter, tensor

    return list(found.values())


# -- what no module lists --------------------------------------------------------------

# `extra`, or `extra[0]`, and what comes behind
_FIRST = re.compile(r"(\w+)(?:\[(.*?)\])?(.*)", re.DOTALL)


def homes_of(
    leaves: Iterable[Leaf], models: Models, variables: Variables
) -> dict[int, Home]:
    """Where modules keep leaves whose names begin with those of models, and objects of
    other classes leaves that are attributes of them, by node.
    """
    homes: dict[int, Home] = {}
    for leaf in leaves:
        for name, (prefix, model) in product(leaf.names, models):
            if name.startswith(f"{prefix}.") and leaf.node not in homes:
                found = _home(name[len(prefix) + 1 :], model)
                if found is not None:
                    homes[leaf.node] = found
        for name, space in product(leaf.names, variables):
            holder, _, attribute = name.partition(".")
            kept_by = space.get(holder)
            is_object = attribute.isidentifier() and not is_a(kept_by, torch.nn.Module)
            line = made_at(type(kept_by), attribute) if is_object else None
            if line is not None:
                homes.setdefault(leaf.node, Home("", "", line))
    return homes


def _home(rest: str, module: torch.nn.Module) -> Home | None:
    """The same of a path; None when no attribute holds it.

    >>> _home("extra[0].weight", torch.nn.Linear(1, 1))
    Home(attribute='self.extra', container='torch.nn.ModuleList', line=None)
    """
    while match := _FIRST.fullmatch(rest):
        attribute, key, tail = match.groups()
        child = dict(members(module, "_modules")).get(attribute)
        if child is not None and key is None:
            module, rest = child, tail[1:]
            continue

        # not a registered module: this attribute is what hides the parameter
        container = ""
        if key is not None:
            kind = "Module" if tail else "Parameter"
            container = f"torch.nn.{kind}{'List' if key.isdecimal() else 'Dict'}"
        return Home(f"self.{attribute}", container, made_at(type(module), attribute))
    return None
