"""Checks on a graph that backward has already used up, and what the tensors are called
that join a new graph to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import (
    before as written_before,
    behind as written_behind,
    instead,
)
from gradviz.checks.flow import behind
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import (
    Names,
    as_code,
    as_leaf,
    code,
    first_names,
    line,
    listed,
    made_at,
    title,
    where as place,
)
from gradviz.graph import Edge, Graph, SavedTensor, SourceLine
from gradviz.source.code_line import assigned, read
from gradviz.source.search import taken_over
from gradviz.source.statements import loops_around
from gradviz.wording import one_line, plural


@check(
    "freed-graph",
    "error",
    "backward() has already run through a part of this graph, so it will fail",
    reads_saved=True,
)
def freed_graph(context: CheckContext) -> Diagnoses:
    """`backward()` has run through (part of) this graph and freed what it had saved: a
    second time fails.

    Two cases are typical. A state is carried from one step to the next with its history
    (truncated backpropagation through time): cut it with `state = state.detach()`. Or
    something was computed once outside the loop and is used in every step: compute it
    again in each step, detach it, or keep it with `retain_graph=True`. The finding
    names the nodes that are freed, the backward call that freed them as far as this run
    saw it, and the edges where the new graph reaches the old one. A graph that is freed
    as a whole, looked at after its own `backward()`, is a note only.

    How it is found: Nodes whose saved tensors are freed are looked for. Edges from
    newer nodes to those show which tensor carried the old graph along.

    What to do: Detach what is carried from step to step, `state = state.detach()`, or
    compute in every step what is used in every step. `retain_graph=True` is right only
    when two backward calls share one forward pass.

    When to ignore it: When the graph is looked at after its `backward()` and not used
    again: that is a note.

    ```python
    import torch

    cell = torch.nn.RNNCell(2, 3)
    state = torch.zeros(1, 3)
    for step in range(2):
        state = cell(torch.ones(1, 2), state)
        loss = state.sum()
        loss.backward()
    ```
    """
    graph = context.graph
    freed = _freed(context)
    if not freed:
        return

    if context.call is None and not any(
        _holds(slot) for node in graph.nodes for slot in node.saved
    ):
        yield Diagnosis(
            "backward() has run through this graph",
            tuple(root.name for root in graph.roots),
            f"what {plural(len(freed), 'node')} had saved is freed",
            "No change needed, unless you call backward() once more: then compute the output again, or use retain_graph=True.",
            tuple(freed),
            severity="note",
        )
        return

    joints = joints_behind(context, freed)
    first = joints[0].producer if joints else freed[0]
    old, made = old_tensors(context, joints), made_at(graph, first)
    diagnosis = Diagnosis(
        f"backward() has already run through {plural(len(freed), 'node')} of this graph",
        old.names,
        _freed_why(
            context,
            freed,
            joints,
            listed(old.names) or title(graph, first),
        ),
        "Compute the output again before the second backward(), or call the first one with retain_graph=True.",
        tuple(freed),
        tuple((edge.consumer, edge.position) for edge in joints),
        where=place(graph, first),
        source=made,
    )
    yield diagnosis._replace(**freed_fix(context, joints, old, made))


def _freed(context: CheckContext) -> list[int]:
    """The nodes that had been freed before this call."""
    graph = context.graph
    freed = [graph.nodes[i] for i, flags in enumerate(graph.flags) if "freed" in flags]

    # it has freed something itself, what was made since the call before among it
    if context.ran:
        again = (
            context.record.raised is not None
            and "second time" in context.record.raised.text
        )
        freed = [
            node for node in freed if again and (node.sequence or 0) < context.since
        ]

    return [node.id for node in freed]


def _holds(slot: SavedTensor) -> bool:
    """Whether a slot still holds what backward would have freed; attributes that a
    custom Function set on `ctx` stay.
    """
    return (
        slot.tensor is not None
        and slot.state != "freed"
        and not slot.slot.startswith("ctx.")
    )


def joints_behind(
    context: CheckContext,
    freed: Sequence[int],
) -> list[Edge]:
    """Edges from what was made after the freed part into it.

    The freed part is everything up to the newest freed node, and what the same step
    made after it, as far as this run saw.
    """
    graph = context.graph
    gone = set(freed)
    newest = max((graph.nodes[i].sequence or 0) for i in freed)
    newest = min(
        (call.boundary - 1 for call in context.earlier if call.boundary > newest),
        default=newest,
    )

    def old(i: int) -> bool:
        sequence = graph.nodes[i].sequence
        return sequence is not None and sequence <= newest

    return [
        edge
        for edge in graph.edges
        if old(edge.producer) and not old(edge.consumer) and edge.consumer not in gone
    ]


def _freed_why(
    context: CheckContext,
    freed: Sequence[int],
    joints: Sequence[Edge],
    who: str,
) -> str:
    graph, calls = context.graph, _calls(context, freed)
    parts = [f"backward() already freed {listed([title(graph, i) for i in freed], 2)}"]
    if calls:
        parts.append(f"they are older than {listed(calls)}")
    elif context.earlier or context.call is None:
        parts.append("which backward() call freed them was not seen")
    joined = "nothing in this graph is new, so this is a second backward() through the same graph"
    if joints:
        users = f"{title(graph, joints[0].consumer)} uses the result of {title(graph, joints[0].producer)}"
        joined = f"this graph reaches them through {who}: {users}"
    return "; ".join([*parts, joined])


def _calls(
    context: CheckContext,
    freed: Sequence[int],
) -> list[str]:
    """The first backward calls that the freed nodes are older than, as far as this run
    saw them.
    """
    calls: dict[int, str] = {}
    for number in (context.graph.nodes[i].sequence for i in freed):
        first = next(
            (
                one
                for one in context.earlier
                if number is not None and number < one.boundary
            ),
            None,
        )
        if first is not None:
            calls[first.call] = first.output

    return [
        f"backward call {call}{f' ({one_line(output)})' if output else ''}"
        for call, output in calls.items()
    ]


def freed_fix(
    context: CheckContext,
    joints: Sequence[Edge],
    old: OldTensors,
    made: SourceLine | None,
) -> dict[str, Any]:
    """What to do, and where, as fields of the diagnosis."""
    spared = _spared(context)
    again = _run_again(context, joints, old) if spared is None else None
    if again is not None:
        return again

    spared = spared or _once_more(context, joints, old)
    if spared is not None:
        name, at = one_line(spared.name), spared.source
        fix = f"In {line(at)}, use {name}.detach() instead of {name}: {one_line(spared.because)}."
        new = re.sub(
            rf"(?<![\w.]){re.escape(name)}(?![\w.(])", f"{name}.detach()", at.text
        )
        return {
            "fix": fix,
            "where": "",
            "source": at,
            "part": spared.name,
            "edit": instead(at, new),
        }

    other = _other_loss(context) if not joints else ""
    if other:
        both = f"({as_code(other)} + {as_code(context.graph.roots[0].name)}).backward()"
        fix = f"Call backward() once, of the sum: {both} gives the same gradients in one pass. Or call the first one with "
        return {
            "fix": f"{fix}retain_graph=True.",
            "where": "",
            "source": context.backward,
        }

    leaf = as_leaf(made) if not old.again else ""  # else each step makes new numbers
    if leaf:
        return {"fix": f"Create the leaf last: {leaf}.", "edit": instead(made, leaf)}

    return _apart(context, joints, old, made) if joints else {}


def _apart(
    context: CheckContext,
    joints: Sequence[Edge],
    old: OldTensors,
    made: SourceLine | None,
) -> dict[str, Any]:
    """The same about what joins a new graph to an old one."""
    taken = made_at(context.graph, joints[0].consumer)
    # an attribute of a module, that nobody sees from outside
    if not old.names and not old.cut and taken is not None:
        return {
            "fix": f"Call .detach() of what {code(taken)} takes over from the step before.",
            "source": taken,
        }

    there, written = context.backward, old.cut
    if old.again is False:
        who = listed(old.names) or "the tensor there"
        lines = (made_at(context.graph, edge.producer) or made for edge in joints)
        there = max(lines, key=lambda at: at.line if at else 0)
        fix = f"Compute {who} inside the loop, in every step. If it needs no gradient, detach it once, after {line(there)}: "
        fix += f"{written}."
    elif old.kept and old.again:
        written = f"{as_code(old.names[0])}.clear()"
        fix = f"Clear {old.names[0]} in every step, after {line(there)}, so that it keeps nothing of the step before: {written}."
    else:
        fix = f"{detached(context, old)} retain_graph=True would run back to the very first step each time."

    if there is not None and old.names and old.again:
        state = taken_over(there).get(old.names[0])
    else:
        state = None

    if state is not None:
        at = {
            "source": state,
            "where": "",
            "part": "",
        }
    else:
        at = {}

    return {"fix": fix, "edit": written_behind(there, written), **at}


def _other_loss(context: CheckContext) -> str:
    """The output that backward began at before, where that is another one than now and
    both were there at that time.
    """
    before, roots = (
        (context.earlier[-1] if context.earlier else None),
        context.graph.roots,
    )
    if (
        before is None
        or len(roots) != 1
        or roots[0].node is None
        or before.output == roots[0].name
    ):
        return ""

    made = context.graph.nodes[roots[0].node].sequence
    named = all(
        name.replace(".", "_").isidentifier() for name in (before.output, roots[0].name)
    )
    if named and made is not None and made < before.boundary:
        return before.output

    return ""


def detached(context: CheckContext, old: OldTensors) -> str:
    """The advice to detach a state between two steps."""
    if context.backward is not None:
        there = f"after {line(context.backward)}"
    else:
        there = "between the steps"
    return f"Detach {listed(old.names) or 'the state'} {there}: {old.cut or 'state = state.detach()'}."


# -- old tensors -----------------------------------------------------------------------


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


def old_tensors(context: CheckContext, joints: Sequence[Edge]) -> OldTensors:
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
    kept = any(
        name != _variable(name)
        for edge in joints
        for name in nodes[edge.producer].names[:1]
    )
    again = _is_made_again(context, joints, made) if made else None
    if again is False and _is_state(context, names, made):
        again = None

    return OldTensors(
        tuple(dict.fromkeys(map(_variable, names))),
        again,
        _cut(names),
        kept,
    )


def _is_made_again(
    context: CheckContext, joints: Sequence[Edge], made: Sequence[SourceLine]
) -> bool:
    """Whether one of these lines runs in each step."""
    nodes = context.graph.nodes
    oldest_new = context.since or min(
        (nodes[edge.consumer].sequence or 0 for edge in joints), default=0
    )
    newer = {node.source for node in nodes if (node.sequence or -1) >= oldest_new}
    return any(
        source in newer or _in_one_loop(source, context.backward) for source in made
    )


def _is_state(
    context: CheckContext,
    names: Names,
    made: Sequence[SourceLine],
) -> bool:
    """Whether a method keeps it as an attribute."""
    here = context.backward.function if context.backward is not None else ""
    return any("." in name for name in names) and any(
        source.function != here for source in made
    )


def _in_one_loop(made: SourceLine, backward: SourceLine | None) -> bool:
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


def _names(context: CheckContext, edge: Edge) -> Names:
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


def _once_more(
    context: CheckContext, joints: Sequence[Edge], old: OldTensors
) -> _Spared | None:
    """What each step makes again, and another line keeps for the next one, as a running
    mean does.
    """
    for edge in joints if len(old.names) == 1 and old.again else ():
        made, used, (name,) = (
            made_at(context.graph, edge.producer),
            made_at(context.graph, edge.consumer),
            old.names,
        )
        if (
            used is not None
            and used != made
            and name in assigned(made)
            and name in read(used)
        ):
            return _Spared(used, name, "there it is that of an earlier step")

    return None


def _run_again(
    context: CheckContext, joints: Sequence[Edge], old: OldTensors
) -> dict[str, Any] | None:
    """What to do where each step computes something once, and two backward calls of the
    step go through it.
    """
    if joints:
        made, used = (
            made_at(context.graph, node)
            for node in (joints[0].producer, joints[0].consumer)
        )
    else:
        made, used = (None,) * 2

    end = context.backward.line if context.backward is not None else 0
    if (
        made is None
        or used is None
        or not made.line < used.line <= end
        or len(old.names) != 1
    ):
        return None

    if (
        old.names[0] not in assigned(made)
        or old.names[0] not in read(used)
        or not _in_one_loop(made, used)
    ):
        return None

    fix = f"Compute {old.names[0]} again directly before {line(used)}: {one_line(made.text)}."
    # nothing was updated in between
    if context.earlier and context.earlier[-1].step == context.step:
        fix += " Or add up both losses, and call backward() once."

    return {
        "fix": fix,
        "where": "",
        "source": used,
        "edit": written_before(used, made.text),
    }


class _Spared(NamedTuple):
    """The line that used `name` with its history, though nothing behind it is trained
    from there, and why.
    """

    source: SourceLine
    name: str
    because: str


def _spared(context: CheckContext) -> _Spared | None:
    """Where one of two calls could have gone without what both share, as a critic's can
    without that of the images it is shown.

    An optimizer of its own holds what that call trains beside the tensor, and others
    hold all that is behind it.
    """
    graph, before = context.graph, context.before
    if before is None:
        return None

    names = {
        node.sequence: node.names for node in graph.nodes if node.sequence is not None
    }
    known = {node.sequence for node in before.nodes} & names.keys()
    for one in (before, graph):
        for edge in one.edges:
            shared, source = one.nodes[edge.producer], made_at(one, edge.consumer)
            if (
                shared.sequence not in known
                or one.nodes[edge.consumer].sequence in known
                or source is None
            ):
                continue
            name, trains = (
                next(iter(names[shared.sequence or 0]), ""),
                _whose_turn(context, one, edge.producer),
            )
            if trains and name in read(source):
                why = f"{trains} updates nothing behind it, so that call needs no history of it"
                return _Spared(source, name, why)

    return None


def _whose_turn(context: CheckContext, graph: Graph, node: int) -> str:
    """The optimizer of what a call trains beside a node, where others hold all that is
    behind the node; else "".
    """
    inside = _leaves(graph, [node])
    beside = _leaves(graph, (root.node for root in graph.roots)) - inside
    there, elsewhere = _holders(context, inside), _holders(context, beside)
    return min(elsewhere) if there and elsewhere and not there & elsewhere else ""


def _leaves(
    graph: Graph,
    start: Iterable[int | None],
) -> set[str]:
    """The names of the leaves behind some nodes."""
    nodes = (node for node in behind(graph, start) if node in graph.leaf_of)
    return {name for node in nodes for name in graph.leaf_of[node].names}


def _holders(
    context: CheckContext,
    names: set[str],
) -> set[str]:
    return {
        one.name
        for one in context.optimizers
        if any(names.intersection(tensor.names) for tensor in one.tensors)
    }
