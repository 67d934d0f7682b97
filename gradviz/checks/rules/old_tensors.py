"""What the tensors of an earlier step are called that a graph reaches, and the code that
cuts them off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.words import (
    Names,
    as_code,
    first_names,
    line,
    listed,
)
from gradviz.graph import Edge, SourceLine
from gradviz.source.code_line import assigned, read
from gradviz.source.search import taken_over
from gradviz.source.statements import loops_around


def detached(context: BackwardCall, old: OldTensors) -> str:
    """The advice to detach a state between two steps."""
    if context.backward is not None:
        there = f"after {line(context.backward)}"
    else:
        there = "between the steps"
    return f"Detach {listed(old.names) or 'the state'} {there}: {old.cut or 'state = state.detach()'}."


class OldTensors(NamedTuple):
    """Tensors of an earlier step that a graph reaches, by the names that variables have
    for them, or for what comes after them.

    `again`: whether each step makes them anew, as it does a state; None when that is
    unknown. `cut` is the code that detaches them.
    """

    names: Names = ()
    again: bool | None = None
    cut: str = ""
    kept: bool = False  # a container still holds them


def old_tensors(context: BackwardCall, joints: Sequence[Edge]) -> OldTensors:
    """What is behind these edges, which lead from a new part of the graph into an old
    one.
    """
    nodes = context.graph.nodes
    names = tuple(
        dict.fromkeys(name for edge in joints for name in _names(context, edge))
    )
    made = [
        source for edge in joints if (source := nodes[edge.producer].source) is not None
    ]
    again = _is_made_again(context, joints, made) if made else None

    # a method keeps it as an attribute
    at = context.backward.function if context.backward is not None else ""
    kept_on = any("." in name for name in names)
    if again is False and kept_on and any(source.function != at for source in made):
        again = None
    first = [name for edge in joints for name in nodes[edge.producer].names[:1]]
    kept = any(name != _variable(name) for name in first)
    variables = tuple(dict.fromkeys(map(_variable, names)))
    return OldTensors(variables, again, _cut(names), kept)


def _is_made_again(
    context: BackwardCall, joints: Sequence[Edge], made: Sequence[SourceLine]
) -> bool:
    """Whether one of these lines runs in each step."""
    nodes = context.graph.nodes
    oldest_new = context.since or min(
        (nodes[edge.consumer].sequence or 0 for edge in joints), default=0
    )
    newer = {node.source for node in nodes if (node.sequence or -1) >= oldest_new}
    return any(
        source in newer or in_one_loop(source, context.backward) for source in made
    )


def in_one_loop(made: SourceLine, backward: SourceLine | None) -> bool:
    """Whether a line runs again for each call."""
    if backward is None or (made.file, made.function) != (
        backward.file,
        backward.function,
    ):
        return False
    return bool(
        {*loops_around(made.file, made.line)}
        & {*loops_around(backward.file, backward.line)}
    )


def _names(context: BackwardCall, edge: Edge) -> Names:
    """What variables call the tensor of an edge now; else what they call that which the
    same line has made in this step.
    """
    nodes, made = context.graph.nodes, context.graph.nodes[edge.producer]
    if made.names:
        return made.names[:1]

    taken = {_last(name) for name in read(nodes[edge.consumer].source)}
    wanted = taken.intersection(map(_last, assigned(made.source))) or taken
    with_graph = [
        tensor
        for tensor in context.named_tensors
        if tensor.requires_grad and not tensor.leaf
    ]
    held = [name for tensor in with_graph for name in (*tensor.names, *tensor.aliases)]
    of_the_line = [name for name in held if _last(name) in wanted]
    carried = taken_over(context.backward) if context.backward is not None else {}
    alike = (
        one
        for one in with_graph
        if one.node is not None and nodes[one.node].source == made.source
    )

    return tuple(
        of_the_line
        or [name for name in held if _variable(name) in carried]
        or first_names(alike)
    )


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
        variable, index = _variable(name), name[len(_variable(name)) :]
        if index.count("[") > 1:
            return ""
        if index:
            cut = f"tuple(one.detach() for one in {variable})"
        else:
            cut = f"{variable}.detach()"
        if index[1:2] in ("'", '"'):
            cut = f"{{key: one.detach() for key, one in {variable}.items()}}"
        cuts.setdefault(variable, f"{variable} = {cut}")

    return "; ".join(cuts.values())
