"""Checks on what goes on from one step to the next: graphs that grow, and gradients
that add up.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.leaves import recorded_updates
from gradviz.checks.run import HABIT, Interval, RetainedHistory, steps_of
from gradviz.checks.words import as_code, code, first_names, line, listed, nodes_of
from gradviz.graph import Leaf
from gradviz.source.search import grad_reads
from gradviz.source.statements import written_at
from gradviz.wording import one_line, plural

# -- growing-graph ---------------------------------------------------------------------

_CARRIED = Row(
    "each step goes on with the graphs of all steps before",
    "the outputs lead back through {steps}, and {names} {has} their graphs",
    "Detach what a step takes over from the one before, or each part of it: state = state.detach().",
)
_GROWS = Row(
    "{name} keeps the graphs of {steps} alive",
    "{name} remembers how all of them were computed, {count} with what they saved, and keeps that memory{adds}",
    "{fix}",
)


@check(
    "growing-graph",
    "warning",
    "the graph of earlier steps is kept, and more of it with every step",
    repeats=("freed-graph", "stale-saved"),
    whole_run=True,
)
def growing_graph(context: BackwardCall) -> Diagnoses:
    """What hangs on earlier steps grows from one backward call to the next: memory
    fills up slowly, and steps get slower.

    Three things do it: a running total of losses with their graphs (`total += loss`), a
    state that keeps its history, and an update that is recorded
    (`w = w - lr * w.grad`). Backward calls with no update between them belong to one
    step: several losses of one forward pass share its graph. The graph merely being
    larger, as with a longer sequence, is no sign and not reported.

    How it is found: Numbers of nodes tell in which step each was made. No variable
    should hold the graphs of four, also in closures, classes and modules of yours. They
    are looked at in the first steps, now and then, and when the script ends.

    What to do: Add `loss.item()` or `loss.detach()` to running totals, cut states with
    `.detach()`, and update under `torch.no_grad()`.

    When to ignore it: When a few steps are accumulated on purpose and then let go, as
    in truncated backpropagation over several chunks.

    ```python
    import torch

    w = torch.ones(1, requires_grad=True)
    total = 0.0
    for step in range(4):
        loss = (w * step - 1).square().sum()
        loss.backward()
        total = total + loss
    ```
    """
    held = [*context.run.held.values()]
    # what each step hands on is in all that was computed from it
    if held and any(map(_leads_back, context.run.read)):
        yield _CARRIED.filled(
            tuple(history.name for history in held),
            held[0].source,
            steps=plural(held[0].steps, "step"),
        )
        return

    # each loss leads to all updates
    follows = ("nonleaf-parameter",) if recorded_updates(context) else ()
    for history in held:
        source = history.added or history.source
        adds = f"; {code(source)} adds a tensor that still has its graph"
        yield _GROWS.filled(
            (history.name,),
            source,
            name=one_line(history.name),
            count=plural(history.nodes, "node"),
            steps=plural(history.steps, "step"),
            adds=adds if source else "",
            fix=_stored(history, [root.name for root in context.graph.roots]),
            follows=follows,
        )


def _leads_back(context: BackwardCall) -> bool:
    """Whether the outputs lead back through several steps."""
    sequences = (node.sequence for node in context.graph.nodes)
    return steps_of(filter(None, sequences), context.ends) > 2


def _stored(history: RetainedHistory, losses: Sequence[str]) -> str:
    """What to do about a variable that holds graphs."""
    if history.added is not None:
        return f"In {line(history.added)}, store it without its graph: .detach(), or .item() for a single number."
    name, source = as_code(history.name), history.source
    for loss in losses:
        added = written_at(source)
        if added.endswith(f"+= {loss}"):
            return f"In {line(source)}, add a number: {added}.item()"
    if history.container:
        return f"Store what goes into {name} without its graph: .detach(), or .item() for a single number."
    return f"Add loss.item() to a running total; detach a state between the steps: {name} = {name}.detach()."


# -- gradients and updates -------------------------------------------------------------

_NOT_RESET = Row(
    "the gradients of {names} add up from step to step",
    "by backward call {call} each had been updated twice, and nothing had reset .grad: backward() adds to what is there, so "
    "every update repeats the gradients of all earlier steps",
    "{fix}",
)


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
    optimized, leaves = context.optimized, context.graph.leaves
    # what is neither optimized nor changed by hand follows another network: see
    # never-updated
    by_hand = grad_reads(context.body) or optimized.isdisjoint(nodes_of(leaves))
    growing = [
        leaf
        for leaf in leaves
        if (by_hand or leaf.node in optimized)
        and _piles_up(context, leaf, leaf.node in optimized)
    ]

    if growing:
        yield _NOT_RESET.filled(
            first_names(growing),
            context.backward,
            call=context.call,
            fix=_reset(context, growing),
            nodes=nodes_of(growing),
        )


def _piles_up(context: BackwardCall, leaf: Leaf, optimized: bool) -> bool:
    """Whether a leaf has just been updated often enough since its gradient was reset;
    later calls say nothing new.

    What an optimizer holds may be changed in place for other reasons.
    """
    since = context.intervals.get(leaf.node, Interval())
    times = since.steps if optimized else since.changes
    return since.updated and times == HABIT


def _reset(context: BackwardCall, leaves: Sequence[Leaf]) -> str:
    """What to do about gradients that add up."""
    nodes = set(nodes_of(leaves))
    calls = [
        f"{as_code(optimizer.name)}.zero_grad()"
        for optimizer in context.optimizers
        if nodes.intersection(nodes_of(optimizer.tensors))
    ]
    if not nodes <= context.optimized:
        calls = [f"{as_code(name)}.grad = None" for name in first_names(leaves)]
    place = f"before {line(context.backward) or 'backward()'}, or after the update"
    verb = "Call" if nodes <= context.optimized else "Set"
    return f"{verb} {listed(calls)} once in every step, {place}."


# -- a loss that is counted twice --------------------------------------------------------

_TWICE = Row(
    "the gradient of {names} has one loss in it twice",
    "{first} has added its gradient already, and {second} goes through the same loss again, with no zero_grad() in between",
    "{fix}",
)


@check(
    "doubled-gradient",
    "warning",
    "a loss is counted twice: in a backward call of its own, and in a sum",
)
def doubled_gradient(context: BackwardCall) -> Diagnoses:
    """Two backward calls of one step go through the same loss, and its gradient is in
    `.grad` twice.

    `loss_a.backward(retain_graph=True)` and then `(loss_a + loss_b).backward()`, or a
    running total of losses whose `backward()` is called in each turn of a loop.

    How it is found: the output of one call, a single number, is in the graph of the
    next, or the other way round, and a gradient that an optimizer uses was neither
    reset nor used in between.

    What to do: call `backward()` once, of the sum.

    When to ignore it: when the loss is to have twice the weight.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        fit = model(torch.ones(2, 3)).square().mean()
        loss = fit + model.weight.square().sum()
        optimizer.zero_grad()
        fit.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
    ```
    """
    before = context.previous
    if before is None or context.loss is None or before.loss is None:
        return
    first, second = _outputs(before), _outputs(context)
    leads_back = first <= _made(context)
    kept = [leaf for leaf in context.graph.leaves if _is_kept(context, leaf)]
    if not kept or not (leads_back or second <= _made(before)):
        return
    extra = before.backward if leads_back else context.backward
    fix = f"Leave out {code(extra)}: the other call computes its gradient, too."
    if before.backward == context.backward:
        fix = f"Move {code(extra)} out of the loop: call it once, when the sum is complete."
    yield _TWICE.filled(
        first_names(kept),
        extra,
        first=code(before.backward),
        second=code(context.backward),
        fix=fix,
        nodes=nodes_of(kept),
    )


def _is_kept(context: BackwardCall, leaf: Leaf) -> bool:
    """Whether a gradient of the call before is still there, and an optimizer takes it."""
    since = context.intervals.get(leaf.node, Interval())
    return since.kept and not since.updated and leaf.node in context.optimized


def _outputs(context: BackwardCall) -> set[tuple[str, int | None]]:
    nodes, roots = context.graph.nodes, context.graph.roots
    every = [nodes[root.node] for root in roots if root.node is not None]
    return {(node.op, node.sequence) for node in every}


def _made(context: BackwardCall) -> set[tuple[str, int | None]]:
    """The nodes of a call, known by their number in any graph."""
    return {(node.op, node.sequence) for node in context.graph.nodes}
