"""What graphs hold that should be gone: parts of earlier steps, and references in a
circle.

Sequence numbers decide what is of an earlier step: a node made before the previous
backward call has a lower number than the call. Leaves have none and are no history.
Reads attributes and closures; runs nothing, and asks the garbage collector nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradviz.checks.call import Cycle
from gradviz.checks.collect.behind import Variables, names_behind
from gradviz.checks.run import RetainedHistory, steps_of
from gradviz.checks.words import variable_of
from gradviz.cuts.classes import assignment_in
from gradviz.graph import Graph, SourceLine
from gradviz.recording.session import running
from gradviz.source.search import addition_to
from gradviz.variables.objects import class_attribute, own_attributes, tensors_in
from gradviz.variables.scanner import as_written, scan
from gradviz.walker.tensors import grad_fn_of, has_graph
from gradviz.walker.walk import Walked


def cycles(walked: Walked) -> dict[Cycle, list[int]]:
    """Custom Functions of which an attribute of `ctx` is an output: that leads to the
    node, which is `ctx`. Each keeps the part of the graph behind it alive when nothing
    else does any more.
    """
    found: dict[Cycle, list[int]] = {}
    for i, node in enumerate(walked.nodes):
        # only the node of a custom Function has attributes that Python code sets
        if not isinstance(node, torch.autograd.function.BackwardCFunction):
            continue
        for attribute, value in own_attributes(node).items():
            if any(grad_fn_of(tensor) is node for tensor in tensors_in(value)):
                name = type(node).__name__.removesuffix("Backward")
                cycle = Cycle(attribute, name, _set_in(node, attribute))
                found.setdefault(cycle, []).append(i)
    return found


def _set_in(node: object, attribute: str) -> SourceLine | None:
    """Where the forward() of a custom Function sets an attribute of its first argument,
    or setup_context() does.
    """
    kind = class_attribute(type(node), "_forward_cls")
    for name in ("forward", "setup_context"):
        method = getattr(class_attribute(kind, name), "__func__", None)
        line = assignment_in(getattr(method, "__code__", None), attribute)
        if line is not None:
            return line
    return None


def made_in_place(graph: Graph) -> frozenset[int]:
    """The nodes that modules with `inplace=True` made, where a saved tensor was changed."""
    session, made = running(), set[int]()
    if session is None or not any("modified" in flags for flags in graph.flags):
        return frozenset()
    for node in graph.nodes:
        call = session.event_log().calls.at(node.sequence or 0)
        if call is not None and call.module.in_place:
            made.add(node.id)
    return frozenset(made)


# -- what variables hold ---------------------------------------------------------------

# so many steps or more are told: the sum of two networks' losses is of three already
_STEPS = 4
_TENSORS = 200  # of one variable that are looked at
_FIELD = re.compile(r"(?<=\[)(\d+\]).*\..*$")  # of an element of a list


def _holder(name: str) -> str:
    """The variable or attribute that holds all of a list: `agent.memory` of
    `agent.memory[3].value`.

    >>> [_holder(name) for name in ("losses[1]", "agent.memory[3].value", "kept['a'][0]", "states['a'].h", "a.b")]
    ['losses', 'agent.memory', 'kept', "states['a'].h", 'a.b']
    """
    return variable_of(_FIELD.sub(r"\1", name))


def held_by(variables: Variables) -> dict[str, list[torch.Tensor]]:
    """The tensors with a graph that each variable, or attribute of an object, holds. A
    list counts as one.
    """
    groups: dict[str, list[torch.Tensor]] = {}
    for variable in scan(variables):
        tensor = variable.value
        if variable.kind == "tensor" and has_graph(tensor):
            groups.setdefault(_holder(variable.name), []).append(tensor)
    return groups


# -- parts of earlier steps ------------------------------------------------------------


def held_since(variables: Variables, ends: Sequence[int]) -> Iterator[RetainedHistory]:
    """The variables that hold the graphs of several steps, which ended at these sequence
    numbers.
    """
    for name, held in held_by(variables).items():
        # the newest ones say enough, and a list may hold thousands
        name_of = names_behind(held[-_TENSORS:])
        numbers = sorted(name_of, reverse=True)
        steps = steps_of(numbers, ends)
        if steps < _STEPS:
            continue

        # nobody may have watched the last steps, but one before them
        like = [number for number in numbers if name_of[number] == name_of[numbers[0]]]
        source = next(filter(None, map(_line_of, like)), None)
        added = _adds(source.file, name) if source is not None else None
        old = sum(number < ends[-1] for number in numbers)
        written = as_written(name, variables)
        is_part = len(held) > 1
        yield RetainedHistory(written, old, steps, source, added, is_part)


def _adds(file: str, name: str) -> SourceLine | None:
    """The line that puts something into it: `meter.update(loss)` adds to `meter.total`."""
    return addition_to(file, name) or addition_to(file, name.rpartition(".")[0])


def _line_of(number: int) -> SourceLine | None:
    """Where the node of this number was made."""
    session = running()
    site: Any = session.event_log().lines.at(number) if session is not None else None
    return site.place.own_line if site is not None and site.place else None
