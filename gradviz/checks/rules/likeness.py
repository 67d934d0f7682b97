"""Checks on parameters that are, or were, alike: tied weights that are two parameters, and products that begin at zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradviz.checks.context import Evidence, Tie, Trained
from gradviz.checks.registry import Found, check
from gradviz.checks.words import (
    as_code,
    code,
    line,
    listed,
    verb,
)
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls from which a weight that is zero, with a gradient of zero, counts as stuck."""


@check("untied", "warning", "weights that look tied are two parameters, and drift apart")
def untied(evidence: Evidence) -> Iterator[Found]:
    """Two weights that began as one and are two parameters: each gets its own gradient, and they drift apart.

    Tying weights means that two modules hold the same `nn.Parameter` object. A copy of its numbers, as in
    `head.weight = torch.nn.Parameter(embedding.weight.clone())`, is another parameter.

    How it is found: the weight of an embedding and that of a linear layer began with the same numbers, and differ after a step;
    or two parameters share their memory, as after `head.weight.data = embedding.weight.data`, so that both updates hit it.

    What to do: assign the parameter itself, `head.weight = embedding.weight`, before the optimizer is made.

    When to ignore it: when one was only to begin as a copy of the other.

    ```python
    import torch

    embedding, head = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
    model = torch.nn.Sequential(embedding, head)
    head.weight = torch.nn.Parameter(embedding.weight.detach().clone())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = torch.nn.functional.cross_entropy(model(torch.arange(5)), torch.arange(5).roll(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    ledger = evidence.ledger
    if ledger is None:
        return
    trained = {name for one in ledger.leaves if one.updates for name in one.names}
    for tie in ledger.ties:
        if trained.issuperset(tie.names) and (tie.shared or tie.apart):
            yield _tie(tie)


def _tie(tie: Tie) -> Found:
    first, second = map(one_line, tie.names)
    what = "share their memory and are" if tie.shared else "began with the same numbers and are"
    why = (
        "they are distinct parameters on one piece of memory: each gets its part of the gradient, and the optimizer updates the "
        "numbers once for each, with momentum and weight decay twice"
        if tie.shared
        else "they were equal at the first backward call and differ now: the one was made as a copy of the other, so each gets its "
        "own gradient"
    )
    return Found(
        f"{first} and {second} {what} two parameters",
        tie.names,
        ", ".join(filter(None, (second, line(tie.source)))),
        why + (f"; {code(tie.source)}" if tie.source is not None else ""),
        f"Let both modules hold one parameter, before the optimizer is made: {as_code(second)} = {as_code(first)}. If they are to "
        "be two, nothing.",
        source=tie.source,
    )


@check("zero-start", "warning", "weights begin at zero and their gradient is zero, so they never move")
def zero_start(evidence: Evidence) -> Iterator[Found]:
    """A weight is zero, its gradient is zero, and both stay so: it cannot learn.

    In a product of two weights, as LoRA's `B @ A`, the gradient of each is the other one times something: when both begin at
    zero, neither ever moves. One factor at zero is the usual start, and fine.

    How it is found: all elements of two matrices of a module, and of their gradients, were zero at two calls.

    What to do: begin with random numbers in one of the two.

    When to ignore it: when they are switched on later.

    ```python
    import torch

    A, B = torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.zeros(1, 2))
    layer = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD([A, B, *layer.parameters()], lr=0.1)
    for step in range(3):
        x = torch.ones(2, 3)
        loss = (layer(x) + x @ A.t() @ B.t() - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    ledger = evidence.ledger
    if ledger is None or not any(one.steps for one in ledger.optimizers):
        return
    stuck = [one for one in ledger.leaves if one.zero >= ENOUGH]
    groups: dict[str, list[Trained]] = {}
    for one in stuck:
        groups.setdefault(one.module, []).append(one)
    pairs = [one for members in groups.values() if len(members) > 1 for one in members]
    if pairs:
        yield _stuck(evidence, pairs)


def _stuck(evidence: Evidence, members: Sequence[Trained]) -> Found:
    names = tuple(one.names[0] for one in members if one.names)
    first = _written(names[0], members[0]) if names else "one of them"
    modules = listed(dict.fromkeys(f"{one.module} ({one.type})" for one in members if one.module), 3)
    where = ", ".join(filter(None, (modules, line(members[0].source))))
    return Found(
        f"{plural(len(members), 'weight')} {verb(members, 'is', 'are')} zero with a gradient of zero: they never move",
        names,
        where,
        f"all elements of {listed(names, 4)} and of their gradients were 0 at {ENOUGH} calls or more: where weights are multiplied "
        "with each other, the gradient of each is the other one times something",
        f"Begin with one factor of each product at zero and the other at random numbers: torch.nn.init.normal_({first}, std=0.02), "
        "right after it is made.",
        tuple(one.node for one in members if one.call == evidence.call),
        source=members[0].source,
    )


def _written(name: str, one: Trained) -> str:
    """A weight as the code that makes it calls it: `self.A` in a module."""
    return f"self.{one_line(name.rpartition('.')[2])}" if one.module else one_line(name)
