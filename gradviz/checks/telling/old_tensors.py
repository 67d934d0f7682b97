"""What the tensors of an earlier step are called that a graph reaches, and the code that
cuts them off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.words import Names, as_code, line, listed, variable_of
from gradviz.graph import Edge, SourceLine
from gradviz.source.search import taken_over
from gradviz.source.statements import assigned_at, loops_around, reads_at


class OldTensors(NamedTuple):
    """Tensors of an earlier step that a graph reaches, by the names that variables have
    for them, or for what comes after them. `cut` is the code that detaches them, `kept` a
    container that holds them.

    `again`: whether each step makes them anew, as it does a state.
    """

    names: Names = ()
    again: bool = True
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
    nodes, backward = context.graph.nodes, context.backward
    names, again, kept = dict[str, None](), False, ""
    new = {node.source for node in nodes if (node.sequence or 0) >= context.since}

    for edge in joints:
        producer = nodes[edge.producer]
        names |= dict.fromkeys(producer.names[:1] or _names(context, edge))
        for name in producer.names[:1]:
            # a container that is not emptied
            kept = variable_of(name) if name != variable_of(name) else kept
        source = producer.source
        if source is not None:
            again |= source in new or in_one_loop(source, backward)
            # a method keeps it as an attribute
            elsewhere = backward is None or source.function != backward.function
            once = source.function.rpartition(".")[2] in ("__init__", "<module>")
            again |= elsewhere and not once and any("." in name for name in names)

    variables = dict.fromkeys(map(variable_of, names))
    return OldTensors(tuple(variables), again, _cut(list(names)), kept)


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
    taken = set(map(_last, reads_at(nodes[edge.consumer].source)))
    results = set(map(_last, assigned_at(nodes[edge.producer].source)))
    taken = taken & results or taken

    # the state is made anew by now, under the name that it had
    carried = taken_over(context.backward) if context.backward is not None else {}
    computed = [tensor for tensor in context.named_tensors if not tensor.leaf]
    held = [name for tensor in computed for name in (*tensor.names, *tensor.aliases)]
    of_the_line = tuple(name for name in held if _last(name) in taken)
    return of_the_line or tuple(name for name in held if variable_of(name) in carried)


def _last(name: str) -> str:
    """What code in any function calls it: `state` of `net[0].state[1]`."""
    return variable_of(name).rpartition(".")[2]


def _cut(names: Sequence[str]) -> str:
    """The code that detaches what has these names.

    >>> _cut(["h", "c[0]", "c[1]", "d['a']"])
    "h = h.detach(); c = tuple(part.detach() for part in c); d['a'] = d['a'].detach()"
    """
    cuts = dict[str, None]()
    for name in map(as_code, names):
        variable, cut = variable_of(name), f"{name} = {name}.detach()"
        # nobody can assign to a part of a tuple
        if name.count("[") == variable.count("[") + 1 and not name.endswith("']"):
            cut = f"{variable} = tuple(part.detach() for part in {variable})"
        cuts[cut] = None
    return "; ".join(cuts)
