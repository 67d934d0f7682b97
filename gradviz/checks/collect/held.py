"""What graphs hold that should be gone: parts of earlier steps, and references in a
circle.

Sequence numbers decide what is of an earlier step: a node made before the previous
backward call has a lower number than the call. Leaves have none and are no history.
Reads attributes and closures; runs nothing, and asks the garbage collector nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gradviz.checks.call import BackwardCall, Cycle
from gradviz.checks.collect.lines import Variables, assignment_in, line_at
from gradviz.checks.run import RetainedHistory
from gradviz.graph import Graph, SourceLine, column
from gradviz.graph.amounts import COMPUTED
from gradviz.recording.session import running
from gradviz.source.search import addition_to
from gradviz.variables.objects import (
    class_attribute,
    is_a,
    own_attributes,
    tensors_in,
)
from gradviz.variables.scanner import as_written, scan
from gradviz.walker.isolation import isolated
from gradviz.walker.names import Names
from gradviz.walker.private import Node
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture, live_nodes


def cycles(walked: Walked) -> Iterator[Cycle]:
    """All of a graph. Each keeps the part of the graph behind it alive when nothing
    else does any more.
    """
    with isolated():
        yield from _functions(walked)


def _functions(walked: Walked) -> Iterator[Cycle]:
    """Custom Functions of which an attribute of `ctx` is an output: that leads to the
    node, which is `ctx`.
    """
    for i, node in enumerate(walked.nodes):
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            for attribute, value in own_attributes(node).items():
                if any(grad_fn_of(tensor) is node for tensor in tensors_in(value)):
                    kind = class_attribute(type(node), "_forward_cls")
                    name = type(node).__name__.removesuffix("Backward")
                    yield Cycle(attribute, i, name, _set(kind, attribute))


def _set(kind: Any, attribute: str) -> SourceLine | None:
    """Where the forward() of a custom Function sets an attribute of its first argument,
    or setup_context() does.
    """
    methods = (
        getattr(class_attribute(kind, method), "__func__", None)
        for method in ("forward", "setup_context")
    )
    lines = (
        assignment_in(getattr(method, "__code__", None), attribute)
        for method in methods
    )
    return next(filter(None, lines), None)


_TENSORS = 200  # of one variable that are looked at
_WINDOW = 16  # elements of a deque that is a window over the last steps, and no leak
_INDEX = re.compile(r"(\[[^\]]*\])+$")
_STEP = re.compile(r"\.\w+|\[[^\]]*\]")
_FIELD = re.compile(r"(?<=\[)(\d+\]).*\..*$")  # of an element of a list


def carried(
    context: BackwardCall, variables: Variables, since: int, attribution: Any
) -> Iterator[RetainedHistory]:
    """The part of the graph of the outputs that is older than `since`, with the edges
    that lead into it.

    Then the same for each variable, and attribute of an object, that holds a graph
    which is not part of the outputs' graph.

    A list counts as one.
    """
    history = _older(context.graph, since, "")
    if history is not None:
        yield history

    for name, held in _beside(context, variables).items():
        graph = capture(
            held.tensors, title=name, need_graph=False, attribution=attribution
        )
        history = _older(replace(graph, roots=()), since, name)
        if history is not None:
            newest = next(
                (root.node for root in graph.roots if root.node is not None), None
            )
            number = max(
                sequence
                for sequence in column(graph.nodes, "sequence")
                if sequence is not None
            )
            source = graph.nodes[newest].source if newest is not None else None
            yield history._replace(source=source, newest=number, depth=held.depth)


def _beside(context: BackwardCall, variables: Variables) -> dict[str, Held]:
    """What variables hold with a graph beside that of the outputs; windows over the
    last steps are left out.
    """
    named = (
        tensor
        for tensor in context.named_tensors
        if tensor.node is None and not tensor.leaf
    )
    beside = {tensor.names for tensor in named if tensor.requires_grad}
    groups: dict[str, Held] = {}

    for tensor, names in Names(None, None, variables).named() if beside else ():
        if names in beside and _function(tensor) is not None:
            groups.setdefault(
                as_written(_holder(names[0]), variables),
                Held(),
            ).add(tensor, names[0])

    return {
        name: held for name, held in groups.items() if not is_window(name, variables)
    }


@dataclass
class Held:
    """The tensors with a graph that one variable holds, and the most steps that lead to
    one from it: two to `[3].h`.
    """

    tensors: list[torch.Tensor] = field(default_factory=list)
    depth: int = 0

    def add(self, tensor: torch.Tensor, name: str) -> None:
        self.tensors.append(tensor)
        self.depth = max(
            self.depth,
            len(_STEP.findall(name[len(_holder(name)) :])),
        )


def _holder(name: str) -> str:
    """The variable or attribute that holds all of a list: `agent.memory` of
    `agent.memory[3].value`.

    >>> [_holder(name) for name in ("losses[1]", "agent.memory[3].value", "kept['a'][0]", "states['a'].h", "a.b")]
    ['losses', 'agent.memory', 'kept', "states['a'].h", 'a.b']
    """
    return _INDEX.sub("", _FIELD.sub(r"\1", name))


def held_by(variables: Variables) -> dict[str, Held]:
    """The tensors with a graph that each variable, or attribute of an object, holds. A
    list counts as one.
    """
    groups: dict[str, Held] = {}
    for variable in scan(variables):
        if (
            variable.kind == "tensor"
            and variable.value.requires_grad
            and _function(variable.value) is not None
        ):
            groups.setdefault(_holder(variable.name), Held()).add(
                variable.value, variable.name
            )
    return groups


def held_since(
    variables: Variables, starts: Sequence[int], enough: int
) -> Iterator[RetainedHistory]:
    """The variables that hold the graphs of several steps, which began at these numbers
    of nodes.
    """
    with isolated():
        for name, held in held_by(variables).items():
            nodes = live_nodes(held.tensors[-_TENSORS:])
            numbers = [node._sequence_nr() for node in nodes]
            old = [number for number in numbers if number < starts[-1]]
            steps = {bisect_right(starts, number) for number in old}
            if len(steps) < enough or is_window(name, variables):
                continue

            source, written = _line_of(max(old)), as_written(name, variables)
            added = addition_to(source.file, name) if source is not None else None
            history = RetainedHistory(written, len(old), None, source, (), added)
            yield history._replace(steps=len(steps), depth=held.depth)


def _line_of(number: int) -> SourceLine | None:
    """Where the node of this number was made."""
    session = running()
    site: Any = session.event_log().lines.at(number) if session is not None else None
    place = site.place if site is not None else None
    return line_at(place) if place is not None else None


def is_window(name: str, variables: Variables) -> bool:
    """Whether a name is that of a deque of a few elements, which lets go of the oldest."""
    first, *attributes = name.split(".")
    value: object = next(
        (space[first] for space in variables if first in space),
        None,
    )
    for attribute in attributes:
        value = own_attributes(value).get(attribute)
    return is_a(value, deque) and value.maxlen is not None and value.maxlen <= _WINDOW


def _function(tensor: torch.Tensor) -> Node | None:
    try:
        with isolated():
            return grad_fn_of(tensor)
    except RuntimeError:
        return None


def _older(
    graph: Graph,
    since: int,
    name: str,
) -> RetainedHistory | None:
    old = {
        node.id
        for node in graph.nodes
        if node.sequence is not None and node.sequence < since
    }
    if not old:
        return None

    joints = [
        edge
        for edge in graph.edges
        if edge.producer in old and edge.consumer not in old
    ]
    storages = {
        slot.storage
        for i in old
        for slot in graph.nodes[i].saved
        if slot.storage is not None and graph.storages[slot.storage].kind in COMPUTED
    }
    nbytes = sum(graph.storages[storage].nbytes or 0 for storage in storages)
    return RetainedHistory(
        name,
        len(old),
        nbytes,
        graph.nodes[joints[0].consumer].source if joints else None,
        tuple((edge.consumer, edge.position) for edge in joints),
        repeats=any(
            _made(graph, edge.consumer) == _made(graph, edge.producer)
            for edge in joints
        ),
    )


def _made(graph: Graph, node: int) -> object:
    """The line that made a node, and the module that it ran in; the node itself where
    no line is known.
    """
    made = graph.nodes[node]
    if made.source is not None:
        return (made.source, made.scope is not None and graph.scopes[made.scope].path)
    return made
