"""What the tensors of an earlier step are called that a graph reaches, and the code that
cuts them off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.words import Names, as_code, line, listed
from gradviz.graph import Edge, SourceLine
from gradviz.source.code_line import assigned, read
from gradviz.source.search import taken_over
from gradviz.source.statements import loops_around


class OldTensors(NamedTuple):
    """Tensors of an earlier step that a graph reaches, by the names that variables have
    for them, or for what comes after them.

    `again`: whether each step makes them anew, as it does a state; None when that is
    unknown. `cut` is the code
    that detaches them, `kept` a container that holds them.
    """

    names: Names = ()
    again: bool | None = None
    cut: str = ""
    kept: str = ""


def detached(context: BackwardCall, old: OldTensors) -> str:
    """The advice to detach a state between two steps."""
    place = "between the steps"
    if context.backward is not None:
        place = f"after {line(context.backward)}"
    cut = old.cut or "state = state.detach()"
    return f"Detach {listed(old.names) or 'the state'} {place}: {cut}."


def old_tensors(context: BackwardCall, joints: Sequence[Edge]) -> OldTensors:
    """What is behind these edges, which lead from a new part of the graph into an old
    one.
    """
    nodes, kept, again = context.graph.nodes, "", False
    names, backward = dict[str, None](), context.backward
    function, elsewhere = backward.function if backward is not None else "", False
    new = {node.source for node in nodes if (node.sequence or 0) >= context.since}
    for edge in joints:
        producer = nodes[edge.producer]
        names |= dict.fromkeys(producer.names[:1] or _names(context, edge))
        for name in producer.names[:1]:
            kept = _variable(name) if name != _variable(name) else kept
        source = producer.source
        if source is not None:
            again |= source in new or in_one_loop(source, backward)
            elsewhere |= source.function != function
    variables = dict.fromkeys(map(_variable, names))
    # a method keeps it as an attribute
    unknown = elsewhere and any("." in name for name in names)
    again_or_unknown = again or (None if unknown else False)
    return OldTensors(tuple(variables), again_or_unknown, _cut(list(names)), kept)


def in_one_loop(source: SourceLine, backward: SourceLine | None) -> bool:
    """Whether a line runs again for each call."""
    if backward is None or source.file != backward.file:
        return False
    loops = {*loops_around(source.file, source.line)}
    same = source.function == backward.function
    return same and not loops.isdisjoint(loops_around(backward.file, backward.line))


def _names(context: BackwardCall, edge: Edge) -> Names:
    """What variables call that which the line of an old tensor has made in this step."""
    nodes = context.graph.nodes
    taken = set(map(_last, read(nodes[edge.consumer].source)))
    results = set(map(_last, assigned(nodes[edge.producer].source)))
    taken = taken & results or taken
    carried = taken_over(context.backward) if context.backward is not None else {}
    held = [
        name
        for tensor in context.named_tensors
        if tensor.requires_grad and not tensor.leaf
        for name in (*tensor.names, *tensor.aliases)
    ]
    of_the_line = tuple(name for name in held if _last(name) in taken)
    return of_the_line or tuple(name for name in held if _variable(name) in carried)


_INDEX = re.compile(r"(\[[^\]]*\])+$")


def _variable(name: str) -> str:
    """The variable that holds what is called so: `net[0].state` of `net[0].state[1]`."""
    return _INDEX.sub("", name)


def _last(name: str) -> str:
    """What code in any function calls it: `state` of `net[0].state[1]`."""
    return _variable(name).rpartition(".")[2]


def _cut(names: Sequence[str]) -> str:
    """The code that detaches what has these names.

    >>> _cut(["h", "c[0]", "c[1]"])
    'h = h.detach(); c = tuple(one.detach() for one in c)'
    >>> _cut(["d['a']"])
    'd = {key: one.detach() for key, one in d.items()}'
    >>> _cut(["h[0][1]"])
    ''
    """
    cuts: dict[str, str] = {}
    for name in map(as_code, names):
        variable = _variable(name)
        depth = name.count("[") - variable.count("[")
        if depth > 1:
            return ""
        cut = f"{variable}.detach()"
        if depth:
            cut = f"tuple(one.detach() for one in {variable})"
        if name.endswith(("']", '"]')):
            cut = f"{{key: one.detach() for key, one in {variable}.items()}}"
        cuts.setdefault(variable, f"{variable} = {cut}")
    return "; ".join(cuts.values())
