"""Checks on what the code does from one backward call to the next: resetting gradients, and updating parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradviz.checks.context import CheckContext, Optimizer
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.words import line, listed, verb
from gradviz.graph import Leaf
from gradviz.wording import one_line, plural

TIMES = 2
"""Times from which something is a habit of the code. Once may be on purpose, as in training against each other."""


@check("gradient-not-reset", "warning", "each step adds its gradient to those of the steps before")
def gradient_not_reset(context: CheckContext) -> Iterator[Diagnosis]:
    """Nothing resets `.grad` between the steps. `backward()` adds to it, so each update also repeats those of all earlier steps.

    Reported when a leaf was updated twice between backward calls, by its optimizer or else in place, and `.grad` was reset neither
    then nor in between (three calls are needed, see `--steps`). Adding up the gradients of several calls before one update is no
    sign. Whether the gradient of an updated leaf is all zeros is the one thing that is read without `--values`.

    How it is found: Between the backward calls, it is noted which leaves an optimizer or an in-place change has updated, and
    whether their `.grad` was emptied, replaced or zeroed.

    What to do: Call `optimizer.zero_grad()` once in every step, before `backward()` or after the update. Without an optimizer,
    set `.grad` to None.

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
    optimized = {node for optimizer in context.optimizers for node in _nodes(optimizer)}
    by_hand = context.reads_grad or not optimized.intersection(leaf.node for leaf in context.graph.leaves)
    growing = [leaf for leaf in context.graph.leaves if _piles_up(context, leaf, leaf.node in optimized)]
    growing = [
        leaf for leaf in growing if leaf.node in optimized or by_hand
    ]  # else it follows another network: see never-updated
    if not growing:
        return
    yield Diagnosis(
        f"{verb(growing, 'the gradient', 'the gradients')} of {_who(growing)} {verb(growing, 'adds', 'add')} up from step to step",
        _names(growing),
        line(context.backward),
        f"by backward call {context.call} {verb(growing, 'it', 'each')} had been updated {TIMES} times, and nothing had reset "
        ".grad: backward() adds to what is there, so every update repeats the gradients of all earlier steps",
        _reset_fix(context, growing),
        tuple(leaf.node for leaf in growing),
        source=context.backward,
        follows=("not-called",),
    )


@check("no-update", "warning", "gradients are reset before the optimizer takes its step")
def no_update(context: CheckContext) -> Iterator[Diagnosis]:
    """An optimizer takes its steps when the gradients are gone already: it updates nothing.

    Mostly `zero_grad()` stands between `backward()` and `step()`. Reported when this happened to all tensors of an optimizer that
    the last three backward calls reached (see `--steps`), both times. Gradients that are reset with no step at all are no sign:
    code may look at them only, as attacks and saliency maps do.

    How it is found: For each optimizer that takes a step, it is noted whether the tensors it holds have a gradient at that
    moment.

    What to do: Order the calls: `zero_grad()`, `backward()`, `step()`.

    When to ignore it: When the steps are taken without gradients on purpose.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
    ```
    """
    lost = {leaf.node: leaf for leaf in context.graph.leaves if _is_lost(context, leaf)}
    for optimizer in context.optimizers:
        reached = [tensor.node for tensor in optimizer.tensors if tensor.node in context.handled]
        unfed = [lost[node] for node in reached if node in lost]
        if not unfed or len(unfed) < len(reached):
            continue
        name = one_line(optimizer.name)
        yield Diagnosis(
            f"{name} ({optimizer.type}) updates nothing: the gradients are reset before it takes its step",
            _names(unfed),
            line(context.backward),
            f"before backward call {context.call} and the one before it took a step, and {_who(unfed)} had no gradient any "
            "more: what backward() had filled in was reset first",
            f"Call {name}.step() after backward(), and {name}.zero_grad() only after that, or before backward().",
            tuple(leaf.node for leaf in unfed),
            source=context.backward,
        )


def _piles_up(context: CheckContext, leaf: Leaf, optimized: bool) -> bool:
    """Whether a leaf has just been updated often enough since its gradient was reset; later calls say nothing new.

    What an optimizer holds may be changed in place for other reasons.
    """
    count, last = 0, False
    for handled in context.handled.get(leaf.node, ()):
        last = handled.stepped or (handled.changed and not optimized)
        count = count + last if handled.reset is False else 0
    return last and count == TIMES


def _is_lost(context: CheckContext, leaf: Leaf) -> bool:
    """Whether the optimizer came too late for the gradient of a leaf, the last times."""
    last = context.handled.get(leaf.node, ())[-TIMES:]
    return len(last) == TIMES and all(
        handled.missed and not handled.stepped and not handled.changed for handled in last
    )


def _names(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    return tuple(name for leaf in leaves for name in leaf.names[:1])


def _who(leaves: Sequence[Leaf]) -> str:
    names = _names(leaves)
    if len(leaves) == 1:
        return listed(names) or "a leaf"
    return f"{plural(len(leaves), 'tensor')} ({listed(names, 3)})" if names else plural(len(leaves), "tensor")


def _reset_fix(context: CheckContext, leaves: Sequence[Leaf]) -> str:
    nodes = {leaf.node for leaf in leaves}
    holders = [optimizer for optimizer in context.optimizers if _nodes(optimizer) & nodes]
    calls = [f"{one_line(optimizer.name)}.zero_grad()" for optimizer in holders]
    if nodes <= {node for optimizer in holders for node in _nodes(optimizer)}:
        return f"Call {listed(calls)} once in every step: before backward(), or after the update."
    name = one_line(next(iter(_names(leaves)), "w"))
    others = "" if len(leaves) == 1 else ", and so on for each"
    changed = [change.source for change in context.changes if set(change.names) & set(_names(leaves))]
    behind = f", behind {line(changed[-1])}" if changed else ", after the update"
    return f"Reset it in every step{behind}: {name}.grad = None{others}."


def _nodes(optimizer: Optimizer) -> set[int]:
    return {tensor.node for tensor in optimizer.tensors if tensor.node is not None}
