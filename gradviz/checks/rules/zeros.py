"""The check for gradients that are 0 whatever the numbers are: behind operations whose
derivative is 0 everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import RESHAPES, behind, kind, makers, spread, users
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.words import first_names, made_at, nodes_of, verb
from gradviz.graph import Graph, Leaf
from gradviz.graph.kinds import BENT, FLAT, SAMPLES, flat_part, onward, reachable

_AROUND = "let the gradient pass straight through: y = x + (torch.{op}(x) - x).detach()"
_SAMPLE = "use a sample that the gradient passes: mean + std * torch.randn_like(mean), or rsample() of a distribution"
_SCALES = RESHAPES | {"Mul", "Div", "Neg", "Clamp"}
_MULTIPLIES = RESHAPES | {"Mm", "Bmm", "Mul", "Neg", "Expand"}
_ZERO = Row(
    "the gradient of {names} is exactly 0: {what} is 0 everywhere",
    "every path from the output to {them} leads through {code}{seen}",
    "In {line}, {mend}.",
)

_PARTLY = Row(
    "no gradient passes {code}: {what} is 0 everywhere",
    "{names} {learn} nothing through it, and only by other paths",
    "In {line}, {mend}.",
)
_BOTH_ZERO = Row(
    "{names} are both 0, and so the gradient of each is exactly 0: they never learn",
    "{code} multiplies what is computed from one by the other, and the gradient of each is a multiple of the other",
    "Begin one of them with other numbers, as with torch.nn.init.kaiming_uniform_.",
)
_CANCELS = Row(
    "no gradient passes {code}: it adds a tensor, and subtracts it again",
    "the derivative is 1 - 1 = 0, so that {names} {learn} nothing through it",
    "Detach the whole difference, as in x + (y - x).detach().",
)

_NOTHING = 1e-3
"""Less keeps a quotient finite, and does nothing else."""
_DIVIDED = Row(
    "no gradient passes {code}: it multiplies by what it has divided by",
    "the two cancel, so that {names} {learn} nothing through it",
    "Let the factor be a number: (x / y).detach() * y.",
)
_BOUNDED = Row(
    "the gradient is 0 wherever the error is large: {code} clamps it before it is squared",
    "beyond the bounds, clamp() is flat, and what is furthest off learns nothing",
    "Use torch.nn.functional.smooth_l1_loss, whose gradient is bounded and never 0.",
)


@check(
    "no-slope",
    "warning",
    "a gradient is exactly 0, since an operation on the way has no slope anywhere",
)
def no_slope(context: BackwardCall) -> Diagnoses:
    """Backward runs, and the gradient that it gives is 0 whatever the numbers are.

    The derivative of `round`, `sign`, `floor`, `ceil` and `trunc` is 0 everywhere, and so
    is that of `bernoulli` and `normal` with respect to their parameters. What is in front
    of them never learns, and `.grad` is not None. The second derivative of a network of
    ReLUs is 0 for the same reason. Two factors of a product that both begin at 0, as
    those of a LoRA adapter, stay there: the gradient of each is the other one. And
    `x + (y.detach() - x)` is `y`, whose derivative with respect to `x` is 0; so is that of
    `x / y * y` with respect to `y`. Errors that are clamped before they are squared have
    no slope where they are large.

    How it is found: all paths in the graph from the output to a leaf lead through such
    an operation, and its gradient, where backward() has filled it, is exactly 0. Where a
    leaf has other paths, too: what the operation is given goes nowhere else, and the
    operation is no term of a sum, as the `floor(x)` of `x - floor(x)` is; or the operation
    draws a sample, which other layers use and no log probability. Of factors, all
    numbers of both and of their gradients are read, and are 0.

    What to do: let the gradient pass around the operation (straight-through estimator),
    or use a smooth one.

    When to ignore it: when the part in front is not to be trained.

    ```python
    import torch

    encoder, decoder = torch.nn.Linear(4, 3), torch.nn.Linear(3, 4)
    x = torch.randn(8, 4)
    code = torch.round(encoder(x))
    loss = (decoder(code) - x).square().mean()
    loss.backward()
    ```
    """
    graph, passing = context.graph, set(reachable(context.graph))
    nonzero = context.run.nonzero.keys()
    size = {leaf.node: leaf.norm for leaf in context.leaf_gradients}
    zero = []
    for leaf in graph.leaves:
        asked = leaf.node in context.asked
        trained = leaf.kind == "parameter" and not context.asked
        # another call may have given it one
        filled = size.get(leaf.node) or not nonzero.isdisjoint(leaf.names)
        if (asked or (trained and not filled)) and leaf.node not in passing:
            zero.append(leaf)

    yield from _both_zero(context)
    yield from _cancelled(graph)
    yield from _divided(graph)
    yield from _bounded(graph)
    for node, leaves in _by_cause(graph, passing, zero).items():
        what, mend = _what(graph, node)
        yield _ZERO.filled(
            first_names(leaves),
            made_at(graph, node),
            what=what,
            seen="; .grad is 0 after backward()" if leaves[0].node in size else "",
            mend=mend,
            nodes=(node, *nodes_of(leaves)),
            follows=("no-effect",),
        )

    stopping = [*_stopping(graph, passing), *_sampled(graph, passing)]
    for node in stopping if not zero and not context.asked else ():
        what, mend = _what(graph, node)
        reached = set(behind(graph, makers(graph, node)))
        leaves = [leaf for leaf in graph.leaves if leaf.node in reached]
        yield _PARTLY.filled(
            names := first_names(leaves),
            made_at(graph, node),
            what=what,
            learn=verb(names, "learns", "learn"),
            mend=mend,
        )._replace(nodes=(node,))


def _both_zero(context: BackwardCall) -> Diagnoses:
    """Factors that hold each other at 0."""
    graph, nonzero = context.graph, context.run.nonzero.keys()
    still = [leaf.node for leaf in context.leaf_gradients if leaf.is_zero]
    # another call may have given it a gradient
    still = [node for node in still if nonzero.isdisjoint(graph.leaf_of[node].names)]
    for node, factors in _products(graph, still):
        names = first_names(graph.leaf_of[factor] for factor in factors)
        nodes = (node, *factors)
        yield _BOTH_ZERO.filled(names, made_at(graph, node), nodes=nodes)


def _cancelled(graph: Graph) -> Diagnoses:
    """Sums in which one tensor is added, and subtracted from another one."""
    for node in graph.nodes:
        if kind(graph, node.id) != "Add":
            continue
        added = {(use.producer, use.output) for use in graph.inputs(node.id)}
        for maker in makers(graph, node.id):
            uses = graph.inputs(maker) if kind(graph, maker) == "Sub" else ()
            taken = {(use.producer, use.output) for use in uses if use.position == 1}
            other = [use.producer for use in uses if use.position == 0]
            lost = {producer for producer, _ in taken & added}
            passed = spread(other, lambda each: onward(graph, each)[0])
            reached = set(behind(graph, lost)).difference(passed)
            leaves = [leaf for leaf in graph.leaves if leaf.node in reached]
            if leaves:
                names = first_names(leaves)
                learn = verb(names, "learns", "learn")
                source, nodes = made_at(graph, node.id), (node.id,)
                yield _CANCELS.filled(names, source, learn=learn, nodes=nodes)


def _divided(graph: Graph) -> Diagnoses:
    """Products of a tensor and a quotient by it, such as `x / (y + 1e-8) * y`."""
    for node in graph.nodes:
        operands = makers(graph, node.id) if kind(graph, node.id) == "Mul" else []
        for maker in operands:
            uses = graph.inputs(maker) if kind(graph, maker) == "Div" else ()
            below = [use.producer for use in uses if use.position == 1]
            above = [use.producer for use in uses if use.position == 0]
            below += [
                added
                for each in below
                if _adds_next_to_nothing(graph, each)
                for added in makers(graph, each)
            ]
            lost = {operand for operand in operands if operand in below}
            passed = spread(above, lambda each: onward(graph, each)[0])
            reached = set(behind(graph, lost)).difference(passed)
            names = first_names(leaf for leaf in graph.leaves if leaf.node in reached)
            if names:
                learn, source = verb(names, "learns", "learn"), made_at(graph, node.id)
                yield _DIVIDED.filled(names, source, learn=learn, nodes=(node.id,))


def _adds_next_to_nothing(graph: Graph, node: int) -> bool:
    """Whether an operation is `y + 1e-8`, as the code has it."""
    number = re.fullmatch(r"\+ (\d[\d.e-]*)", graph.nodes[node].written)
    alone = kind(graph, node) == "Add" and len(graph.inputs(node)) == 1
    return alone and number is not None and float(number[1]) < _NOTHING


def _bounded(graph: Graph) -> Diagnoses:
    """Differences that are clamped to both sides, squared and averaged."""
    for node in graph.nodes:
        before = [kind(graph, maker) for maker in makers(graph, node.id)]
        if kind(graph, node.id) != "Clamp" or before not in (["Sub"], ["Rsub"]):
            continue
        squares = users(graph, node.id)
        ends = {kind(graph, end) for each in squares for end in users(graph, each)}
        source = made_at(graph, node.id)
        # to one side, as a hinge does, it is meant
        is_bounded = None not in (node.attributes.get(end) for end in ("min", "max"))
        is_squared = {kind(graph, each) for each in squares} == {"Pow"}
        if is_squared and ends == {"Mean"} and is_bounded:
            yield _BOUNDED.filled((), source, nodes=(node.id,))


def _products(graph: Graph, leaves: list[int]) -> Iterator[tuple[int, list[int]]]:
    """The products of two of these leaves, or of what is a multiple of one of them."""
    of: dict[int, set[int]] = {}
    for leaf in leaves:
        multiples = spread([leaf], lambda node: _multiplied_by(graph, node))
        for node in set(multiples) - {leaf}:
            of.setdefault(node, set()).add(leaf)
    for node, factors in sorted(of.items()):
        before = [of.get(maker, {maker}) for maker in makers(graph, node)]
        if len(factors) == 2 and factors not in before:
            yield node, sorted(factors)


def _multiplied_by(graph: Graph, node: int) -> list[int]:
    """What alone uses a node, and makes a multiple of it."""
    after = users(graph, node)
    if len(after) == 1 and kind(graph, after[0]) in _MULTIPLIES:
        return after
    return []


def _what(graph: Graph, node: int) -> tuple[str, str]:
    """What is 0 of an operation, and what to do about it."""
    bent, op = BENT.get(graph.ops[node]), kind(graph, node)
    if bent is not None:
        mend = f"use a smooth activation, such as torch.nn.Tanh(), SiLU() or Softplus(), instead of {bent}"
    else:
        is_around = op not in SAMPLES or op == "Bernoulli"
        mend = _AROUND.format(op=op.lower()) if is_around else _SAMPLE
    return flat_part(graph, node), mend


def _stopping(graph: Graph, passing: set[int]) -> Iterator[int]:
    """The operations that stop the gradient of what goes nowhere else."""
    for node in sorted(passing):
        if kind(graph, node) not in FLAT or not passing.isdisjoint(makers(graph, node)):
            continue
        scaled = spread([node], lambda each: _scaled_by(graph, each))
        ends = [user for each in scaled for user in users(graph, each)]
        # `x + round(8 * x) / 8 - x.detach()` passes the gradient around
        if ends and not any(_adds(graph, end) for end in ends):
            yield node


def _sampled(graph: Graph, passing: set[int]) -> Iterator[int]:
    """The samples, one of each line, whose parameters go elsewhere, too, and that meet
    something else that is learned. One that meets its own parameters is judged by its
    probability, as in policy gradients.
    """
    samples = [node for node in sorted(passing) if kind(graph, node) in SAMPLES]
    for node in {made_at(graph, sample): sample for sample in samples}.values():
        reshaped, met = [node], set[int]()
        for each in reshaped:  # grows while it is read
            for user in users(graph, each):
                others = {*makers(graph, user)}.difference(reshaped)
                met |= others
                reshaped += [] if others or user in reshaped else [user]

        given = makers(graph, node)
        start = {user for each in given for user in users(graph, each)} - {node}
        own = {*given, *spread(start, lambda each: users(graph, each))}
        if start and met and met.isdisjoint(own):
            yield node


def _scaled_by(graph: Graph, node: int) -> Iterator[int]:
    """What only scales, clamps or reshapes what a node made."""
    for user in users(graph, node):
        alone = len(graph.inputs(user)) == 1
        if alone and kind(graph, user) in _SCALES:
            yield user


def _adds(graph: Graph, node: int) -> bool:
    """Whether a node adds two things that have a graph."""
    return kind(graph, node) in ("Add", "Sub") and len(graph.inputs(node)) > 1


def _by_cause(
    graph: Graph, passing: set[int], zero: list[Leaf]
) -> dict[int, list[Leaf]]:
    """The leaves without a gradient, by the first operation that stops it; several of
    one line are one.
    """
    causes: dict[int, list[Leaf]] = {}
    first: dict[object, int] = {}
    for node in sorted(passing) if zero else ():
        reached = set(behind(graph, onward(graph, node)[1]))
        found = [leaf for leaf in zero if leaf.node in reached]
        zero = [leaf for leaf in zero if leaf.node not in reached]
        if found:
            cause = first.setdefault(made_at(graph, node) or node, node)
            causes.setdefault(cause, []).extend(found)
    return causes
