"""Reads models and optimizers: which there are, their parameters with the nodes of the
graph, how their modules ran, and where a module keeps what it does not list.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import CodeType, FunctionType
from typing import NamedTuple

import torch

from gradviz.checks.call import Home, Parameter
from gradviz.checks.collect.behind import Models, Variables
from gradviz.checks.collect.copies import note_copies, note_ties
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.cuts.classes import made_at
from gradviz.explanation import optimizers
from gradviz.graph import Leaf, SourceLine
from gradviz.graph.origins import outer_paths
from gradviz.packages import definition_of
from gradviz.recording.record import ModuleRun, Recording
from gradviz.run.outputs import LiveOutputs
from gradviz.source.search import freezes, matching
from gradviz.source.statements import assigned, body_of
from gradviz.variables.objects import (
    every_path,
    joined,
    members,
    own_attributes,
    parameters as own_parameters,
    submodules,
)
from gradviz.variables.scanner import value_of
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


# -- what does something else than it looks like ----------------------------------------

_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks"


def note_misuse(recorder: Recorder, reading: Reading) -> None:
    """Modules that somebody wants to freeze by an attribute which torch does not read;
    and where forward() of a module with hooks, or of a custom Function, is called in
    place of the module or of apply().
    """
    off, hooked = _misused(reading)
    spaces = reading.live.variables
    files = dict.fromkeys(space.get("__file__") for space in spaces)
    # the files that variables belong to
    written = [file for file in files if type(file) is str]
    for (name, hook), times in Counter(_hooks(reading)).items():
        first = recorder.hooks.setdefault((name, hook), times)
        # a constructor may register several
        if times >= HOOKS and times > first:
            recorder.note(Kind.HOOKED, definition_of(hook), name, str(times))
        source = _without_sign(hook)
        if source is not None:
            recorder.note(Kind.NO_NEGATIVE, source, name)
    if off:
        source = next(filter(None, map(freezes, written)), None)
        recorder.note(Kind.NO_SWITCH, source, *off)
    note_ties(recorder, reading.models)
    for file in sorted(written):
        note_copies(recorder, file, spaces)
        for source, match in matching(file, r"([\w.]+)\.forward\("):
            holder, last = match[1], match[1].rpartition(".")[2]
            value = value_of(holder, spaces)
            if last in hooked:
                recorder.note(Kind.NO_HOOK, source, hooked[last])
            is_custom = isinstance(value, type) and issubclass(value, _FUNCTION)
            named = f"{getattr(value, '__name__', '')}Backward"
            if is_custom and named not in reading.walked.graph.ops:
                recorder.note(Kind.NO_APPLY, source, holder)


def _hooks(reading: Reading) -> Iterator[tuple[str, CodeType]]:
    """The Python functions that change gradients of named tensors, with the name."""
    for tensor, names in reading.walked.names.named():
        for hook in (tensor._backward_hooks or {}).values():
            if isinstance(hook, FunctionType):
                yield names[0], hook.__code__


HOOKS = 3
"""Hooks of one line on one tensor, from which a loop adds one in each turn."""
_CLAMPED = (
    r"(?:torch\.cl(?:am|i)p\(NAME, |NAME\.cl(?:am|i)p_?\()"
    r"(?:min=)?0(?:\.0*)?, (?:max=)?[\d.]+\)"
)


def _without_sign(code: CodeType) -> SourceLine | None:
    """The line of a hook that returns the gradient itself, clamped to numbers from 0
    on, and nothing else.
    """
    clamped = _CLAMPED.replace("NAME", "".join(code.co_varnames[:1]))
    source = definition_of(code)
    if code.co_name == "<lambda>":
        is_all = re.search(rf"lambda \w+: {clamped}(?=[),]|$)", source.text)
        return source if is_all else None
    body, made = body_of(code), dict[str, str]()
    for statement in body.statements:
        names, value = assigned(statement)
        made |= dict.fromkeys(names, ast.unparse(value) if value is not None else "")
    returns = [
        s.value for s in body.statements if isinstance(s, ast.Return) and s.value
    ]
    texts = map(ast.unparse, returns)
    if not returns or not all(re.fullmatch(clamped, made.get(t, t)) for t in texts):
        return None
    return next((line for line, _ in matching(body.file, clamped, body)), source)


def _misused(reading: Reading) -> tuple[list[str], dict[str, str]]:
    """The modules with such an attribute; and those with hooks that take part in the
    graph and were not called, by the last part of their name.
    """
    off, hooked = list[str](), dict[str, str]()
    for name, model in reading.models:
        for path, module in submodules(model):
            held, tensors = own_attributes(module), own_parameters(module)
            switched = held.get("requires_grad") is False
            if switched and any(tensor.requires_grad for tensor in tensors):
                off.append(joined(name, path))
            used = any(id(tensor) in reading.leaf_of for tensor in tensors)
            if used and any(map(held.get, _HOOKS)) and not _is_called(reading, module):
                hooked[path.rpartition(".")[2]] = joined(name, path)
    return off, hooked


_FUNCTION = torch.autograd.Function


def _is_called(reading: Reading, module: torch.nn.Module) -> bool:
    """Whether a module was called, as far as that is known."""
    recording = reading.live.recording
    return recording is None or recording.run_of(module).calls > 0


# -- what no module lists --------------------------------------------------------------

# `extra`, or `extra[0]`, and what comes behind
_FIRST = re.compile(r"(\w+)(?:\[(.*?)\])?(.*)", re.DOTALL)


def homes_of(leaves: Iterable[Leaf], models: Models) -> dict[int, Home]:
    """Where modules keep leaves whose names begin with those of models, by node."""
    homes: dict[int, Home] = {}
    for leaf in leaves:
        for name, (prefix, model) in product(leaf.names, models):
            if name.startswith(f"{prefix}.") and leaf.node not in homes:
                found = _home(name[len(prefix) + 1 :], model)
                if found is not None:
                    homes[leaf.node] = found
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
