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
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from gradviz.checks.call import BackwardCall, Cycle
from gradviz.checks.collect.lines import Variables, assignment_in
from gradviz.checks.run import RetainedHistory
from gradviz.graph import Graph, SourceLine
from gradviz.graph.amounts import COMPUTED
from gradviz.packages import with_text
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
from gradviz.walker.places import Attribution
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture, live_nodes


def cycles(walked: Walked) -> Iterator[Cycle]:
    """Custom Functions of which an attribute of `ctx` is an output: that leads to the
    node, which is `ctx`. Each keeps the part of the graph behind it alive when nothing
    else does any more.
    """
    with isolated():
        for i, node in enumerate(walked.nodes):
            # only the node of a custom Function has attributes that Python code sets
            if not isinstance(node, torch.autograd.function.BackwardCFunction):
                continue
            for attribute, value in own_attributes(node).items():
                if any(grad_fn_of(tensor) is node for tensor in tensors_in(value)):
                    name = type(node).__name__.removesuffix("Backward")
                    yield Cycle(attribute, i, name, _set_in(node, attribute))


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


# -- what variables hold ---------------------------------------------------------------

_TENSORS = 200  # of one variable that are looked at
_WINDOW = 16  # elements of a deque that is a window over the last steps, and no leak
_INDEX = re.compile(r"(\[[^\]]*\])+$")
_FIELD = re.compile(r"(?<=\[)(\d+\]).*\..*$")  # of an element of a list


def _holder(name: str) -> str:
    """The variable or attribute that holds all of a list: `agent.memory` of
    `agent.memory[3].value`.

    >>> [_holder(name) for name in ("losses[1]", "agent.memory[3].value", "kept['a'][0]", "states['a'].h", "a.b")]
    ['losses', 'agent.memory', 'kept', "states['a'].h", 'a.b']
    """
    return _INDEX.sub("", _FIELD.sub(r"\1", name))


def held_by(
    variables: Variables, names: Collection[str] | None = None
) -> dict[str, list[torch.Tensor]]:
    """The tensors with a graph that each variable, or attribute of an object, holds. A
    list counts as one; windows over the last steps are left out. `names`: of no others.
    """
    groups: dict[str, list[torch.Tensor]] = {}
    seen = set[int]()
    for variable in scan(variables):
        tensor = variable.value
        if variable.kind != "tensor" or not _has_graph(tensor) or id(tensor) in seen:
            continue
        if names is None or variable.name in names:
            seen.add(id(tensor))
            groups.setdefault(_holder(variable.name), []).append(tensor)

    return {
        name: held for name, held in groups.items() if not _is_window(name, variables)
    }


def _has_graph(tensor: torch.Tensor) -> bool:
    try:
        with isolated():
            return tensor.requires_grad and grad_fn_of(tensor) is not None
    except RuntimeError:  # a view that torch refuses to follow
        return False


def _is_window(name: str, variables: Variables) -> bool:
    """Whether a name is that of a deque of a few elements, which lets go of the oldest."""
    first, *attributes = name.split(".")
    spaces = (space for space in variables if first in space)
    value: object = next((space[first] for space in spaces), None)
    for attribute in attributes:
        value = own_attributes(value).get(attribute)
    return is_a(value, deque) and value.maxlen is not None and value.maxlen <= _WINDOW


# -- parts of earlier steps ------------------------------------------------------------


def carried(
    call: BackwardCall, variables: Variables, attribution: Attribution | None
) -> Iterator[RetainedHistory]:
    """The part of the graph of the outputs that is older than the step before, with the
    edges that lead into it.

    Then the same for each variable, and attribute of an object, that holds a graph
    which is not part of the outputs' graph.
    """
    history = _older(call.graph, call.since, "")
    if history is not None:
        yield history

    beside = {
        name
        for tensor in call.named_tensors
        if tensor.node is None and not tensor.leaf
        for name in tensor.names
    }
    for name, held in held_by(variables, beside).items() if beside else ():
        graph = capture(held, title=name, need_graph=False, attribution=attribution)
        history = _older(graph, call.since, as_written(name, variables))
        if history is not None:
            roots = [root.node for root in graph.roots if root.node is not None]
            yield history._replace(
                source=graph.nodes[roots[0]].source if roots else None,
                newest=max(node.sequence or 0 for node in graph.nodes),
            )


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
    slots = [slot for node in old for slot in graph.nodes[node].saved]
    storages = {slot.storage for slot in slots if slot.storage is not None}
    computed = [
        graph.storages[i] for i in storages if graph.storages[i].kind in COMPUTED
    ]
    repeats = any(
        _made(graph, edge.consumer) == _made(graph, edge.producer) for edge in joints
    )
    return RetainedHistory(
        name,
        len(old),
        sum(storage.nbytes or 0 for storage in computed),
        graph.nodes[joints[0].consumer].source if joints else None,
        tuple((edge.consumer, edge.position) for edge in joints),
        repeats=repeats,
    )


def _made(graph: Graph, node: int) -> object:
    """The line that made a node, and the module that it ran in; the node itself where
    no line is known.
    """
    record = graph.nodes[node]
    if record.source is None:
        return record
    return record.source, record.scope is not None and graph.scopes[record.scope].path


def held_since(
    variables: Variables, starts: Sequence[int], enough: int
) -> Iterator[RetainedHistory]:
    """The variables that hold the graphs of several steps, which began at these numbers
    of nodes.
    """
    with isolated():
        for name, held in held_by(variables).items():
            # the newest ones say enough, and a list may hold thousands
            nodes = live_nodes(held[-_TENSORS:])
            numbers = [node._sequence_nr() for node in nodes]
            # leaves have the highest number there is, so they never count
            old = [number for number in numbers if number < starts[-1]]
            steps = {bisect_right(starts, number) for number in old}
            if len(steps) < enough:
                continue

            source = _line_of(max(old))
            yield RetainedHistory(
                as_written(name, variables),
                len(old),
                source=source,
                added=addition_to(source.file, name) if source is not None else None,
                steps=len(steps),
            )


def _line_of(number: int) -> SourceLine | None:
    """Where the node of this number was made."""
    session = running()
    site: Any = session.event_log().lines.at(number) if session is not None else None
    place = site.place if site is not None else None
    return with_text(place.script_line or place.source) if place is not None else None
