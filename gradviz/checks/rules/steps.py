"""Checks on what goes on from one step to the next: graphs that grow, and gradients
that add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradviz.checks.call import BackwardCall
from gradviz.checks.edit import before, behind, instead
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.leaves import recorded_updates
from gradviz.checks.rules.old_tensors import OldTensors, detached, old_tensors
from gradviz.checks.run import Interval, RetainedHistory
from gradviz.checks.words import (
    as_code,
    code,
    first_names,
    line,
    listed,
    nodes_of,
    verb,
    where as place,
)
from gradviz.graph import Edge, Graph, Leaf, SourceLine
from gradviz.source.code_line import adds_to, without_graph
from gradviz.wording import bytes_text, one_line, plural

# -- growing-graph ---------------------------------------------------------------------


@check(
    "growing-graph",
    "warning",
    "the graph of earlier steps is kept, and more of it with every step",
    follows=("freed-graph", "stale-saved"),
)
def growing_graph(context: BackwardCall) -> Diagnoses:
    """What hangs on earlier steps grows from one backward call to the next: memory
    fills up slowly, and steps get slower.

    Three things do it: a running total of losses with their graphs (`total += loss`), a
    state that keeps its history, and an update that is recorded
    (`w = w - lr * w.grad`). Consecutive steps of the run are compared (three are
    needed): nodes that were made in an earlier step, and of which there are more each
    time. Backward calls with no update between them belong to
    one step: several losses of one forward pass share its graph. The graph merely being
    larger, as with a longer sequence, is no sign and not reported.

    How it is found: At each step, the nodes are counted that are older than the step
    before and still held, by the outputs and by each variable, also in closures,
    classes and modules of yours. From the third step on, growth shows. Later, now and
    then and when the script ends, variables are looked for that hold the graphs of
    three steps or more.

    What to do: Add `loss.item()` or `loss.detach()` to running totals, cut states with
    `.detach()`, and update under `torch.no_grad()`.

    When to ignore it: When a few steps are accumulated on purpose and then let go, as
    in truncated backpropagation over several chunks.

    ```python
    import torch

    w = torch.ones(1, requires_grad=True)
    total = 0.0
    for step in range(3):
        loss = (w * step - 1).square().sum()
        loss.backward()
        total = total + loss
    ```
    """
    if context.is_last:
        for history in context.run.histories:
            yield _held(context, history)
    if context.step < 2:
        return

    before = {
        history.name: history
        for call in context.earlier
        if call.step == context.step - 1
        for history in sorted(call.retained, key=lambda history: history.nodes)
    }
    # lines whose results the graph of the outputs carries along
    told: set[SourceLine | None] = set()
    for history in context.retained:
        last = before.get(history.name, RetainedHistory(history.name, 0, 0))
        # what holds what it held has more of that old by now
        same = bool(history.name) and history.newest == last.newest
        grows = history.nodes > last.nodes and (last.nodes or history.repeats)
        if same or not grows or history.source in told:
            continue

        yield _growing(context, history, last)
        if not history.name:
            nodes = context.graph.nodes
            edges = _edges(context.graph, history)
            told = {nodes[edge.producer].source for edge in edges} - {None}


def _edges(graph: Graph, retained: RetainedHistory) -> list[Edge]:
    """The joints of the outputs' graph; those of a variable's are in a graph of its
    own.
    """
    joints = set(retained.joints)
    return [edge for edge in graph.edges if (edge.consumer, edge.position) in joints]


def _growing(
    context: BackwardCall, history: RetainedHistory, last: RetainedHistory
) -> Diagnosis:
    more = (history.nbytes or 0) - (last.nbytes or 0)
    grown = plural(history.nodes - last.nodes, "node")
    if last.nbytes is not None and more > 0:
        grown += f" and {bytes_text(more)} of saved tensors"

    grown = f"keeps every earlier graph alive: {grown} more each {_turn(context)}"
    held = f"{plural(history.nodes, 'node')} of earlier steps; in the step before it was {last.nodes:,}"
    source = history.added or history.source
    if history.name:
        name = one_line(history.name)
        return Diagnosis(
            f"{name} {grown}",
            (history.name,),
            f"at backward call {context.call} {name} holds {held}{_adds(source)}",
            _STORED,
            source=source,
        )._replace(**_stored(context, history))

    graph, joints = context.graph, _edges(context.graph, history)
    old = old_tensors(context, joints)
    source = source or next(
        (graph.nodes[edge.producer].source for edge in joints), None
    )
    carrier = f", through {listed(old.names)}" if old.names else ""
    return Diagnosis(
        f"{one_line(next(iter(old.names), 'the graph'))} {grown}",
        old.names,
        f"at backward call {context.call} the graph of {listed(root.name for root in graph.roots)} holds {held}{carrier}"
        f"{_adds(source)}",
        _STORED,
        tuple(dict.fromkeys(edge.producer for edge in joints)),
        history.joints,
        where=place(graph, joints[0].producer) if joints else "",
        source=source,
    )._replace(**_carried(context, joints, old))


def _turn(context: BackwardCall) -> str:
    return "evaluation" if context.in_step else "step"


def _held(context: BackwardCall, history: RetainedHistory) -> Diagnosis:
    """What began to hold graphs after the calls that are read in full."""
    name, source = one_line(history.name), history.added or history.source
    nodes, steps = plural(history.nodes, "node"), plural(history.steps, "step")
    return Diagnosis(
        f"{name} keeps the graphs of {steps} alive",
        (history.name,),
        f"it still references {nodes} of earlier steps and their saved tensors{_adds(source)}",
        _STORED,
        source=source,
        # each loss leads to all updates
        follows=("nonleaf-parameter",) if recorded_updates(context) else (),
    )._replace(**_stored(context, history))


_STORED = "Store numbers or detached tensors there: loss.item() or loss.detach() instead of loss."


def _stored(context: BackwardCall, history: RetainedHistory) -> dict[str, Any]:
    """What to do about a variable that holds graphs, as fields of the diagnosis."""
    name, added = as_code(history.name), history.added or history.source
    given = adds_to(history.source, history.name)
    if given is False or (given is None and not history.depth and not history.added):
        detach = f"{name} = {name}.detach()"
        edit = behind(history.source, detach) if given is False else None
        return {"fix": f"Detach {name} between the steps: {detach}.", "edit": edit}

    new = without_graph(added, history.depth)
    # a module has none
    if new and not any(f"{one.name}.detach()" in new for one in context.models):
        fix = f"In {line(added)}, add a value without its graph: {new}. Use .item() for a single number."
        return {"fix": fix, "edit": instead(added, new)}
    if added is None:
        return {}
    fix = "detach what has a graph before it is stored: .detach(), or .item() for a single number."
    return {"fix": f"In {line(added)}, {fix}"}


def _carried(
    context: BackwardCall, joints: Sequence[Edge], old: OldTensors
) -> dict[str, Any]:
    """The same about what the outputs themselves carry along."""
    made = [context.graph.nodes[edge.producer] for edge in joints]
    # sums with something that has no graph lead into the old part, as a recorded update
    # does
    sums = (node.op.startswith(("Sub", "Add")) and node.none_inputs for node in made)
    if made and all(sums):
        who = listed(old.names[:1]) or "parameters"
        fix = f"Update {who} without recording: inside torch.no_grad() and in place, or with torch.optim."
        return {"fix": fix, "follows": ("nonleaf-parameter",)}
    return {"fix": detached(context, old), "edit": behind(context.backward, old.cut)}


def _adds(source: SourceLine | None) -> str:
    if source is not None:
        return f". {code(source)} adds a tensor that still has its graph"
    return ""


# -- gradients and updates -------------------------------------------------------------

TIMES = 2
"""Times from which something is a habit of the code. Once may be on purpose, as in
training against each other.
"""


@check(
    "gradient-not-reset",
    "warning",
    "each step adds its gradient to those of the steps before",
)
def gradient_not_reset(context: BackwardCall) -> Diagnoses:
    """Nothing resets `.grad` between the steps. `backward()` adds to it, so each update
    also repeats those of all earlier steps.

    Reported when a leaf was updated twice between backward calls, by its optimizer or
    else in place, and `.grad` was reset neither then nor in between (three calls are
    needed, see `--steps`). Adding up the gradients of several calls before one update
    is no sign.

    How it is found: Between the backward calls, it is noted which leaves an optimizer
    or an in-place change has updated, and whether their `.grad` was emptied, replaced
    or zeroed.

    What to do: Call `optimizer.zero_grad()` once in every step, before `backward()` or
    after the update. Without an optimizer, set `.grad` to None.

    When to ignore it: When the sum over all steps is meant, as in a hand-made momentum.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        optimizer.step()
    ```
    """
    optimized = context.optimized
    by_hand = context.reads_grad or not optimized.intersection(
        leaf.node for leaf in context.graph.leaves
    )
    # what is neither optimized nor changed by hand follows another network: see
    # never-updated
    candidates = [
        leaf for leaf in context.graph.leaves if by_hand or leaf.node in optimized
    ]
    growing = [
        leaf for leaf in candidates if _piles_up(context, leaf, leaf.node in optimized)
    ]
    if not growing:
        return

    step, gradients = _turn(context), verb(growing, "the gradient", "the gradients")
    yield Diagnosis(
        f"{gradients} of {_who(growing)} {verb(growing, 'adds', 'add')} up from {step} to {step}",
        first_names(growing),
        f"by backward call {context.call} {verb(growing, 'it', 'each')} had been updated {TIMES} times, and nothing had reset "
        f".grad: backward() adds to what is there, so every update repeats the gradients of all earlier {step}s",
        "",
        nodes_of(growing),
        source=context.backward,
    )._replace(**_reset(context, growing))


def _piles_up(context: BackwardCall, leaf: Leaf, optimized: bool) -> bool:
    """Whether a leaf has just been updated often enough since its gradient was reset;
    later calls say nothing new.

    What an optimizer holds may be changed in place for other reasons, but not while it
    takes a step with a closure.
    """
    since = context.intervals.get(leaf.node, Interval())
    if context.in_step or not optimized:
        return since.changes == TIMES and (since.stepped or since.changed)
    return since.steps == TIMES and since.stepped


def _who(leaves: Sequence[Leaf]) -> str:
    names = first_names(leaves)
    if len(leaves) == 1:
        return listed(names) or "a leaf"
    if names:
        return f"{plural(len(leaves), 'tensor')} ({listed(names, 3)})"
    return plural(len(leaves), "tensor")


def _reset(
    context: BackwardCall,
    leaves: Sequence[Leaf],
) -> dict[str, Any]:
    """What to do about gradients that add up, as fields of the diagnosis."""
    nodes, at = set(nodes_of(leaves)), context.backward
    holders = [
        optimizer
        for optimizer in context.optimizers
        if nodes.intersection(nodes_of(optimizer.tensors))
    ]
    calls = [f"{as_code(optimizer.name)}.zero_grad()" for optimizer in holders]

    if nodes <= context.optimized:
        if context.in_step:
            there = f", before {line(at)}"
        else:
            there = ": before backward(), or after the update"
        return {
            "fix": f"Call {listed(calls)} once in every step{there}.",
            "edit": before(at, "; ".join(calls)),
        }

    name = as_code(next(iter(first_names(leaves)), "w"))
    others = "" if len(leaves) == 1 else ", and so on for each"
    changed = [
        change.source
        for change in context.changes
        if change.name in first_names(leaves)
    ]
    there = f"behind {line(changed[-1])}" if changed else "after the update"
    return {"fix": f"Reset it in every step, {there}: {name}.grad = None{others}."}
