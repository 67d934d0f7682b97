"""Checks on parameters that are, or were, alike: tied weights that are two parameters, and products that begin at zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from gradviz.checks.context import CheckContext
from gradviz.checks.flow import from_outputs
from gradviz.checks.record import LeafRow, Tie
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import all_names, as_code, code, first_names, line, listed, places, verb
from gradviz.graph import Graph, Node
from gradviz.graph.origins import own_line
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls from which a weight that is zero, with a gradient of zero, counts as stuck."""


@check("untied", "warning", "weights that look tied are two parameters, and drift apart")
def untied(context: CheckContext) -> Diagnoses:
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
    record = context.record
    for tie in record.ties:
        if record.updated.issuperset(tie.names) and (tie.shared or tie.apart):
            yield _tie(tie)


def _tie(tie: Tie) -> Diagnosis:
    first, second = map(one_line, tie.names)
    what, why = _SHARED if tie.shared else _COPIED
    return Diagnosis(
        f"{first} and {second} are not tied: two parameters {what}",
        tie.names,
        why + (f"; {code(tie.source)}" if tie.source is not None else ""),
        f"Share one parameter before the optimizer is created: {as_code(second)} = {as_code(first)}. No change needed if you "
        "want two parameters.",
        where=places(second, line(tie.source)),
        source=tie.source,
    )


_SHARED = (
    "on one piece of memory",
    "they are distinct parameters on one piece of memory: each gets its part of the gradient, and the optimizer updates the "
    "numbers once for each, with momentum and weight decay twice",
)
_COPIED = (
    "that began with the same values",
    "they were equal at the first backward call and differ now: the one was made as a copy of the other, so each gets its own "
    "gradient",
)


@check("zero-start", "warning", "weights begin at zero and their gradient is zero, so they never move")
def zero_start(context: CheckContext) -> Diagnoses:
    """A weight is zero, its gradient is zero, and both stay so: it cannot learn.

    In a product of two weights, as LoRA's `B @ A`, the gradient of each is the other one times something: when both begin at
    zero, neither ever moves. One factor at zero is the usual start, and fine.

    How it is found: all elements of two matrices of a model, and of their gradients, were zero at two calls.

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
    record = context.record
    if not record.stepped:
        return
    stuck = [leaf for leaf in record.rows if leaf.zero >= ENOUGH]
    counts = Counter(leaf.model for leaf in stuck)
    pairs = [leaf for leaf in stuck if counts[leaf.model] > 1]
    if pairs:
        yield _stuck(context, pairs)


def _stuck(context: CheckContext, members: Sequence[LeafRow]) -> Diagnosis:
    members = [replace(leaf, source=context.filled.get(leaf.names[0], leaf.source)) for leaf in members if leaf.names]
    members = sorted(members, key=lambda leaf: leaf.source.line if leaf.source is not None else 0)
    names, source = first_names(members), members[0].source
    fix = (
        f"Begin with random numbers: torch.nn.init.kaiming_uniform_({as_code(names[0])}, a=5**0.5), and so on for each."
    )
    if len({leaf.module for leaf in members}) < len(members):  # a product inside one module
        first, there = one_line(names[0]), "in place of what fills it with zeros"
        if members[0].module:  # as the code that makes it calls it
            first = f"self.{first.rpartition('.')[2]}"
        if names[0] in context.filled:
            there += f" in {line(source)}"
        elif source is not None and "zeros" in source.text:
            there = f"right after it is made in {line(source)}"
        fix = "Begin with one factor of each product at zero and the other at random numbers: "
        fix += f"torch.nn.init.normal_({first}, std=0.02), {there}."
    return Diagnosis(
        f"{plural(len(members), 'weight')} {verb(members, 'is', 'are')} zero with a gradient of zero: they never move",
        names,
        f"all elements of {listed(names, 4)} and of their gradients were 0 at {ENOUGH} calls or more: where weights are multiplied "
        "with each other, the gradient of each is the other one times something",
        fix,
        tuple(leaf.node for leaf in members if leaf.call == context.call),
        source=source,
    )


@check("all-zero", "warning", "the gradient of every parameter is zero: nothing is learned")
def all_zero(context: CheckContext) -> Diagnoses:
    """Backward fills every `.grad`, and with nothing but zeros.

    A softmax or cross entropy over a single class, an activation that is flat for all inputs (a ReLU at the end whose
    inputs are all negative, a clamp), a loss that is multiplied with zero.

    How it is found: all gradients that two of the first calls left were zero everywhere. The first element of each is looked at
    first; as soon as one is another number, nothing more is read. A note where no such operation lies on every way to the loss.

    What to do: look at what the loss does with the model's output, from the end on.

    When to ignore it: when the loss is zero because everything is learned already.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.ReLU())
    torch.nn.init.constant_(model[0].bias, -10.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = (model(torch.ones(4, 3)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    graph, calls = context.graph, context.record.flat
    used = {*all_names(graph.leaves)}
    names = tuple(name for name in dict.fromkeys(chain.from_iterable(calls)) if name in used)
    if len(calls) < ENOUGH or not context.record.stepped or not names or not context.loss:
        return  # with a loss of zero, nothing is left to learn
    flat, cause = _on_every_way(graph), ""
    source = context.backward
    fix = "Look whether the loss depends on the output as it should: its last operations, and what it is "
    fix += "multiplied with."
    if flat is not None:
        source, fix = own_line(flat), "Leave it out behind the last layer, or begin with values that are not cut off."
        cause = f"; {flat.op} is flat where it cuts off what it is given ({code(source)})"
    yield Diagnosis(
        f"all {plural(len(names), 'parameter')} get a gradient of zero: nothing is learned",
        names,
        f"backward() filled the .grad of {listed(names, 3)} with zeros only, at {len(calls)} calls{cause}",
        fix,
        (flat.id,) if flat is not None else (),
        source=source,
        severity=None if flat is not None else "note",
        follows=("loss-input", "zero-derivative", "zero-start", "nonfinite", "cancelled-gradient"),
    )


_FEW = 8  # operations near the output that are tried
_CLIPPED = (
    "ClampBackward0",
    "ClampBackward1",
    "ClampMinBackward0",
    "ClampMaxBackward0",
    "HardtanhBackward0",
    "ReluBackward0",
)


def _on_every_way(graph: Graph) -> Node | None:
    """The operation nearest to the output that cuts values off and that every parameter's gradient comes through."""
    leaves = {leaf.node for leaf in graph.leaves if leaf.kind == "parameter"}
    clipped = [node for node in graph.nodes if node.op in _CLIPPED][:_FEW]
    return next((node for node in clipped if leaves.isdisjoint(from_outputs(graph, [node.id]))), None)
