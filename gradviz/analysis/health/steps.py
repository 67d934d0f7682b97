"""Checks on what the code does from one backward call to the next: resetting gradients, and updating parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradviz.analysis.health.registry import Found, check
from gradviz.analysis.health.words import line, listed, verb
from gradviz.evidence import Evidence, Optimizer
from gradviz.graph import Leaf
from gradviz.wording import one_line, plural

TIMES = 2
"""Times in a row from which something is a habit of the code. Once may be on purpose, as in training against each other."""


@check("gradient-not-reset", "warning", "each step adds its gradient to those of the steps before")
def gradient_not_reset(evidence: Evidence) -> Iterator[Found]:
    """Nothing resets `.grad` between the steps. `backward()` adds to it, so each update also repeats those of all earlier steps.

    Reported when a leaf was updated after each of the last two backward calls while its `.grad` stayed as they had left it (three
    calls are needed, see `--steps`). Adding up the gradients of several calls before one update is no sign. A gradient that was
    changed in place, as by `clip_grad_norm_`, may have been reset or not: with `--values` its numbers tell.

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
    found = list(_with(evidence, updated=True, reset=False))
    if not found:
        return
    names, calls = _names(found), _calls(evidence)
    yield Found(
        f"{verb(found, 'the gradient', 'the gradients')} of {_who(found)} {verb(found, 'adds', 'add')} up from step to step",
        names,
        line(evidence.backward),
        f"nothing reset .grad before {calls}, though an update came before each: backward() adds to what is there, so "
        "every update repeats the gradients of all earlier steps",
        _reset_fix(evidence, found),
        tuple(leaf.node for leaf in found),
    )


@check("no-update", "warning", "gradients are reset before an optimizer has used them")
def no_update(evidence: Evidence) -> Iterator[Found]:
    """An optimizer gets gradients at every backward call, and they are reset before it takes a step: nothing is trained.

    Mostly `zero_grad()` stands between `backward()` and `step()`, or `step()` is missing. Reported when all tensors of an
    optimizer that have got a gradient in the last three backward calls (see `--steps`) were left as they were and reset, both
    times. Not reported where a `GradScaler` is in use, which skips steps by itself.

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
    if evidence.may_skip:
        return
    lost = {leaf.node: leaf for leaf in _with(evidence, updated=False, reset=True)}
    for optimizer in evidence.optimizers:
        reached = [one.node for one in optimizer.tensors if one.node in evidence.handled]
        found = [lost[node] for node in reached if node in lost]
        if not found or len(found) < len(reached):
            continue
        name = one_line(optimizer.name)
        yield Found(
            f"{name} ({optimizer.type}) updates nothing: the gradients are reset before it takes a step",
            _names(found),
            line(evidence.backward),
            f"before {_calls(evidence)} the gradients of {_who(found)} were reset, and none of them had been updated since "
            "backward() filled them",
            f"Call {name}.step() after backward(), and {name}.zero_grad() only after that, or before backward().",
            tuple(leaf.node for leaf in found),
        )


def _with(evidence: Evidence, *, updated: bool, reset: bool) -> Iterator[Leaf]:
    """Leaves that were handled like this the last times."""
    for leaf in evidence.graph.leaves:
        last = evidence.handled.get(leaf.node, ())[-TIMES:]
        if len(last) == TIMES and all(one == (updated, reset) for one in last):
            yield leaf


def _calls(evidence: Evidence) -> str:
    return (
        "the last two backward calls" if evidence.call is None else f"backward call {evidence.call} and the one before"
    )


def _names(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    return tuple(name for leaf in leaves for name in leaf.names[:1])


def _who(leaves: Sequence[Leaf]) -> str:
    names = _names(leaves)
    if len(leaves) == 1:
        return listed(names) or "a leaf"
    return f"{plural(len(leaves), 'tensor')} ({listed(names, 3)})" if names else plural(len(leaves), "tensor")


def _reset_fix(evidence: Evidence, leaves: Sequence[Leaf]) -> str:
    nodes = {leaf.node for leaf in leaves}
    holders = [optimizer for optimizer in evidence.optimizers if _nodes(optimizer) & nodes]
    calls = [f"{one_line(optimizer.name)}.zero_grad()" for optimizer in holders]
    if nodes <= {node for optimizer in holders for node in _nodes(optimizer)}:
        return f"Call {listed(calls)} once in every step: before backward(), or after the update."
    name = one_line(next(iter(_names(leaves)), "w"))
    each = "" if len(leaves) == 1 else ", and so on for each"
    return f"Reset it in every step, after the update: {name}.grad = None{each}."


def _nodes(optimizer: Optimizer) -> set[int]:
    return {one.node for one in optimizer.tensors if one.node is not None}
