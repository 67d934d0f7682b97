"""Checks on a graph that backward has already used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import behind, spread, users
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.telling.old_tensors import (
    OldTensors,
    detached,
    in_one_loop,
    old_tensors,
)
from gradviz.checks.words import (
    code,
    first_names,
    line,
    listed,
    made_at,
    nodes_of,
    title,
)
from gradviz.graph import Edge, SourceLine, column
from gradviz.source.code_line import as_leaf
from gradviz.source.search import stores_by_key, taken_over
from gradviz.source.statements import assigned_at, reads_at, written_at
from gradviz.wording import plural

_FREED = Row(
    "backward() has already run through {count} of this graph",
    "backward() already freed {freed}; {joined}",
    "Compute the output again before the second backward(); or add up the losses of one forward pass, and call backward() once.",
)
_SECOND = "nothing in this graph is new, so this is a second backward() through the same graph"
_JOINED = "this graph reaches them through {}: {} uses the result of {}"


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
    names the nodes that are freed and the backward call that freed them, as far as this
    run saw it. A graph that is freed as a whole, looked at after its own `backward()`,
    is left alone.

    How it is found: Nodes whose saved tensors are freed are looked for. Edges from
    newer nodes to those show which tensor carried the old graph along.

    What to do: Detach what is carried from step to step, `state = state.detach()`, or
    compute in every step what is used in every step. `retain_graph=True` is right only
    when two backward calls share one forward pass.

    When to ignore it: When the graph is looked at after its `backward()` and not used
    again.

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
    graph, freed = context.graph, _freed(context)
    if not freed:
        return

    slots = [slot for node in graph.nodes for slot in node.saved]
    holds = [
        slot for slot in slots if slot.tensor is not None and slot.state != "freed"
    ]
    # it is looked at after its own backward(); what a custom Function set on ctx stays
    if context.call is None and all(slot.slot.startswith("ctx.") for slot in holds):
        return

    joints = joints_behind(context, freed)
    first = joints[0].producer if joints else freed[0]
    old, origin, joined = old_tensors(context, joints), made_at(graph, first), _SECOND
    if joints:
        who = listed(old.names) or title(graph, first)
        joined = _JOINED.format(
            who, title(graph, joints[0].consumer), title(graph, first)
        )
    yield _FREED.filled(
        old.names,
        origin,
        count=plural(len(freed), "node"),
        freed=listed([title(graph, node) for node in freed], 2),
        joined=joined,
    )._replace(nodes=tuple(freed), **freed_fix(context, joints, old, origin))


_OUTDATED = Row(
    "{who} comes from before the first step, and {leaves} {has} changed since",
    "{code} computed it before the first step; this step uses it in {user}, with the numbers and the derivative of then",
    "Compute it in every step: move {text} into what runs each time, such as forward().",
)


@check(
    "outdated-result",
    "warning",
    "each step uses what was computed once, from parameters that have changed since",
    repeats=("freed-graph", "stale-saved", "growing-graph"),
    once=True,
)
def outdated_result(context: BackwardCall) -> Diagnoses:
    """A result of a parameter that is computed once, as in `__init__()`, and used in
    every step: it keeps the numbers that the parameter had then.

    Nothing fails where the operations on the way keep no tensors, as a transposed copy,
    or where retain_graph=True keeps them. The parameter gets a gradient and is updated,
    and what uses the result does not see that.

    How it is found: the graph of a later step leads to operations that ran before the
    first step was over, and to a leaf behind them that has been updated since.

    What to do: compute the result where it is used, in `forward()`.

    When to ignore it: when the first numbers of the parameter are meant.

    ```python
    import torch

    w = torch.randn(3, 4, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    turned = w.t().contiguous()
    for step in range(4):
        loss = (torch.randn(8, 4) @ turned).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    graph, first = context.graph, min(context.ends, default=0)
    moved = {node for node, each in context.intervals.items() if each.updated}
    old = [n.id for n in graph.nodes if n.sequence is not None and n.sequence < first]
    computed = set(spread(moved, lambda node: users(graph, node)))
    stale = [node for node in old if node in computed]
    joints = joints_behind(context, stale) if stale and not _freed(context) else []
    if not joints:
        return
    source = made_at(graph, joints[0].producer)
    leaves = moved.intersection(behind(graph, [edge.producer for edge in joints]))
    names = first_names(graph.leaf_of[node] for node in sorted(leaves))
    results = old_tensors(context, joints).names
    yield _OUTDATED.filled(
        names,
        source,
        who=listed(results) or "a result",
        leaves=listed(names),
        user=line(made_at(graph, joints[0].consumer)),
        nodes=tuple(stale),
    )


def _freed(context: BackwardCall) -> list[int]:
    """The nodes that had been freed before this call."""
    nodes, raised = context.graph.nodes, context.run.raised
    freed = [i for i, flags in enumerate(context.graph.flags) if "freed" in flags]
    # it has freed something itself, what was made since the call before among it
    if context.ran:
        again = raised is not None and "second time" in raised.text
        old = [i for i in freed if (nodes[i].sequence or 0) < context.since]
        freed = old if again else []
    return freed


def joints_behind(context: BackwardCall, freed: Sequence[int]) -> list[Edge]:
    """Edges from what was made after the freed part into it.

    The freed part is everything up to the newest freed node, and what the same step
    made after it, as far as this run saw.
    """
    graph, gone = context.graph, set(freed)
    newest = max(graph.nodes[i].sequence or 0 for i in freed)
    later = [end - 1 for end in (*context.ends, context.before) if end > newest]
    newest = min(later, default=newest)

    def old(node: int) -> bool:
        sequence = graph.nodes[node].sequence
        return sequence is not None and sequence <= newest

    return [
        edge
        for edge in graph.edges
        if old(edge.producer) and not old(edge.consumer) and edge.consumer not in gone
    ]


def freed_fix(
    context: BackwardCall,
    joints: Sequence[Edge],
    old: OldTensors,
    origin: SourceLine | None,
) -> dict[str, Any]:
    """What to do, and where, as fields of the diagnosis."""
    spared, backward = _unneeded(context), context.backward
    if spared is not None:
        source, name = spared
        fix = f"In {line(source)}, use {name}.detach() instead of {name}: another loss and its optimizer train what made it."
        return {"fix": fix, "source": source, "part": name}
    # nothing is new: the call itself is the second one
    if not joints:
        return {"source": backward or origin}

    leaf, taken = as_leaf(origin), made_at(context.graph, joints[0].consumer)
    if leaf:
        return {"fix": f"Create the leaf last: {leaf}."}
    if origin and taken and _is_before(origin, taken, old, backward):
        fix = f"Compute {old.names[0]} again directly before {line(taken)}: {written_at(origin)}."
        return {"fix": fix, "source": taken}

    # an attribute of a module, that nobody sees from outside
    if not old.names and taken is not None:
        fix = f"Call .detach() of what {code(taken)} takes over from the step before."
        return {"fix": fix, "source": taken}
    if old.again:
        return _carried_fix(context, old, origin)
    # computed once, before the loop: only the first step could use its graph
    if origin is not None and origin.function.endswith("__init__"):
        return {"fix": _OUTDATED.fix.format(text=written_at(origin)), "source": origin}
    fix = f"Compute {listed(old.names)} inside the loop, in every step. If it needs no gradient, detach it once, after "
    return {"fix": f"{fix}{line(origin)}: {old.cut}."}


def _carried_fix(
    context: BackwardCall, old: OldTensors, origin: SourceLine | None
) -> dict[str, Any]:
    """What to do with what one step takes over from the step before."""
    backward = context.backward
    if old.kept:
        place = f"after {line(backward)}"
        if backward is not None and stores_by_key(backward.file, old.kept):
            fix = f"Detach what {old.kept} holds {place}: {old.kept}[key] = {old.kept}[key].detach() for each key."
            return {"fix": fix}
        # a list that is never emptied takes its old tensors into every step
        fix = f"Clear {old.kept} in every step, {place}, so that it keeps nothing of the step before."
        return {"fix": fix}
    fix = f"{detached(context, old)} retain_graph=True would run back to the very first step each time."
    carried = taken_over(backward) if backward is not None else {}
    states = (carried[name] for name in old.names if name in carried)
    return {"fix": fix, "source": next(states, origin)}


def _is_before(
    origin: SourceLine, taken: SourceLine, old: OldTensors, backward: SourceLine | None
) -> bool:
    """Whether each step computes something once, and two backward calls of the step go
    through it.
    """
    if backward is None or not origin.line < taken.line <= backward.line:
        return False
    name = old.names[0] if len(old.names) == 1 else ""
    return (
        name in assigned_at(origin)
        and name in reads_at(taken)
        and in_one_loop(origin, taken)
    )


def _unneeded(context: BackwardCall) -> tuple[SourceLine, str] | None:
    """The line that used a tensor with its history, and its name, though another
    optimizer trains what is behind it: as a critic is shown images with all that made
    them.
    """
    calls = [call for call in (context.previous, context) if call is not None]
    # a sequence number is given once in a thread; leaves have none
    sequences = [set(column(call.graph.nodes, "sequence")) for call in calls]
    shared = set.intersection(*sequences) - {None} if len(calls) > 1 else set()

    for call in calls:
        every = _holders(call, [root.node for root in call.graph.roots])
        # of the second call, what else it trains is what it is for
        own = call is context and len(every) > 1 and _is_new(call, shared)
        for producer, source, name in _shared_uses(call, shared):
            inside = _holders(call, [producer])
            if inside and (own or every - inside):
                return source, name
    return None


def _shared_uses(
    context: BackwardCall, shared: set[int | None]
) -> Iterator[tuple[int, SourceLine, str]]:
    """The lines that read what is shared, outside of that: with what they read."""
    graph = context.graph
    for edge in graph.edges:
        user, producer = graph.nodes[edge.consumer], graph.nodes[edge.producer]
        source = made_at(graph, user.id)
        if source is None or producer.sequence not in shared or user.sequence in shared:
            continue
        given = producer.names[:1] or assigned_at(made_at(graph, producer.id))
        for name in given:
            if name in reads_at(source):
                yield producer.id, source, name


def _is_new(context: BackwardCall, shared: set[int | None]) -> bool:
    """Whether a part of a graph that is not shared has parameters of its own."""
    graph = context.graph
    users = [
        edge.consumer for edge in graph.edges if edge.producer in context.optimized
    ]
    return any(graph.nodes[user].sequence not in shared for user in users)


def _holders(context: BackwardCall, start: Sequence[int | None]) -> set[str]:
    """The optimizers that hold one of the leaves behind some nodes."""
    nodes = set(behind(context.graph, start))
    return {
        optimizer.name
        for optimizer in context.optimizers
        if not nodes.isdisjoint(nodes_of(optimizer.tensors))
    }
