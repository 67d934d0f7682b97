"""Checks on a graph that backward has already used up, and what the tensors are called
that join a new graph to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gradviz.checks.call import BackwardCall
from gradviz.checks.edit import (
    before as written_before,
    behind as written_behind,
    instead,
)
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.old_tensors import (
    OldTensors,
    detached,
    in_one_loop,
    old_tensors,
)
from gradviz.checks.rules.spared import unneeded
from gradviz.checks.words import (
    as_code,
    as_leaf,
    code,
    line,
    listed,
    made_at,
    title,
    where as place,
)
from gradviz.graph import Edge, SavedTensor, SourceLine
from gradviz.source.code_line import assigned, read
from gradviz.source.search import taken_over
from gradviz.wording import one_line, plural


@check(
    "freed-graph",
    "error",
    "backward() has already run through a part of this graph, so it will fail",
    reads_saved=True,
)
def freed_graph(context: BackwardCall) -> Diagnoses:
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


def _freed(context: BackwardCall) -> list[int]:
    """The nodes that had been freed before this call."""
    graph = context.graph
    freed = [graph.nodes[i] for i, flags in enumerate(graph.flags) if "freed" in flags]

    # it has freed something itself, what was made since the call before among it
    if context.ran:
        again = (
            context.run.raised is not None and "second time" in context.run.raised.text
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
    context: BackwardCall,
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
    context: BackwardCall,
    freed: Sequence[int],
    joints: Sequence[Edge],
    who: str,
) -> str:
    graph = context.graph
    newest = max((graph.nodes[i].sequence or 0) for i in freed)
    later = [call for call in context.earlier if call.boundary > newest]
    when, joined = (
        "",
        "nothing in this graph is new, so this is a second backward() through the same graph",
    )
    if later:
        output = f" ({one_line(later[0].output)})" if later[0].output else ""
        when = f"; they are older than backward call {later[0].call}{output}"
    if joints:
        joined = f"this graph reaches them through {who}: {title(graph, joints[0].consumer)} uses the result of "
        joined += title(graph, joints[0].producer)
    return f"backward() already freed {listed([title(graph, i) for i in freed], 2)}{when}; {joined}"


def freed_fix(
    context: BackwardCall,
    joints: Sequence[Edge],
    old: OldTensors,
    made: SourceLine | None,
) -> dict[str, Any]:
    """What to do, and where, as fields of the diagnosis."""
    spared = unneeded(context)
    if spared is not None:
        name, source = one_line(spared.name), spared.source
        word = rf"(?<![\w.]){re.escape(name)}(?![\w.(])"
        return {
            "fix": f"In {line(source)}, use {name}.detach() instead of {name}: {spared.because}.",
            "where": "",
            "source": source,
            "part": spared.name,
            "edit": instead(source, re.sub(word, f"{name}.detach()", source.text)),
        }

    again = _run_again(context, joints, old)
    if again is not None:
        return again

    other = _other_loss(context) if not joints else ""
    if other:
        both = f"({as_code(other)} + {as_code(context.graph.roots[0].name)}).backward()"
        fix = f"Call backward() once, of the sum: {both} gives the same gradients in one pass. Or call the first one with "
        fix += "retain_graph=True."
        return {"fix": fix, "where": "", "source": context.backward}

    if joints and old.kept and old.again and context.backward is not None:
        return _cleared(old.names[0], context.backward)

    leaf = as_leaf(made) if not old.again else ""  # else each step makes new numbers
    if leaf:
        return {"fix": f"Create the leaf last: {leaf}.", "edit": instead(made, leaf)}
    return _apart(context, joints, old, made) if joints else {}


def _cleared(name: str, backward: SourceLine) -> dict[str, Any]:
    """The same about a container that still holds what earlier steps put there."""
    clear = f"{as_code(name)}.clear()"
    fix = f"Clear {name} in every step, after {line(backward)}, so that it keeps nothing of the step before: {clear}."
    return {"fix": fix, "edit": written_behind(backward, clear)}


def _apart(
    context: BackwardCall,
    joints: Sequence[Edge],
    old: OldTensors,
    made: SourceLine | None,
) -> dict[str, Any]:
    """The same about what joins a new graph to an old one."""
    taken = made_at(context.graph, joints[0].consumer)
    # an attribute of a module, that nobody sees from outside
    if not old.names and not old.cut and taken is not None:
        fix = f"Call .detach() of what {code(taken)} takes over from the step before."
        return {"fix": fix, "source": taken}

    if old.again is False:
        who = listed(old.names) or "the tensor there"
        lines = [made_at(context.graph, edge.producer) or made for edge in joints]
        there = max(lines, key=lambda at: at.line if at else 0)
        fix = f"Compute {who} inside the loop, in every step. If it needs no gradient, detach it once, after {line(there)}: "
        return {"fix": f"{fix}{old.cut}.", "edit": written_behind(there, old.cut)}

    fix = f"{detached(context, old)} retain_graph=True would run back to the very first step each time."
    told = {"fix": fix, "edit": written_behind(context.backward, old.cut)}
    carried = taken_over(context.backward) if context.backward and old.names else {}
    state = carried.get(old.names[0]) if old.again and carried else None
    return told | ({"source": state, "where": "", "part": ""} if state else {})


def _other_loss(context: BackwardCall) -> str:
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


# -- old tensors -----------------------------------------------------------------------


def _run_again(
    context: BackwardCall, joints: Sequence[Edge], old: OldTensors
) -> dict[str, Any] | None:
    """What to do where each step computes something once, and two backward calls of the
    step go through it.
    """
    if not joints or len(old.names) != 1:
        return None
    (name,), end = old.names, context.backward.line if context.backward else 0
    made, used = (
        made_at(context.graph, node)
        for node in (joints[0].producer, joints[0].consumer)
    )
    if made is None or used is None or not made.line < used.line <= end:
        return None
    known = name in assigned(made) and name in read(used)
    if not known or not in_one_loop(made, used):
        return None

    fix = f"Compute {name} again directly before {line(used)}: {one_line(made.text)}."
    # nothing was updated in between
    if context.earlier and context.earlier[-1].step == context.step:
        fix += " Or add up both losses, and call backward() once."
    edit = written_before(used, made.text)
    return {"fix": fix, "where": "", "source": used, "edit": edit}
