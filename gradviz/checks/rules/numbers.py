"""Checks that read the numbers of gradients: those that vanish, explode or are zero."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradviz.checks.context import CheckContext, LeafGradient
from gradviz.checks.finding import Severity
from gradviz.checks.flow import main_path
from gradviz.checks.ops import kind, makers, spread, users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import Names, as_code, code, first_names, line, listed, made_at, nodes_of, places
from gradviz.graph import Graph, Leaf, SourceLine
from gradviz.graph.amounts import known_elements
from gradviz.graph.origins import own_line
from gradviz.wording import plural

HUGE = 1e7
"""`exploding-gradient`: a gradient with a norm above this is called huge even when those of all modules are. Loss scaling, as
mixed precision uses it, stays below."""


_Members = list[tuple[Leaf, LeafGradient]]


class Layer(NamedTuple):
    """The gradients of the parameters of one module: root mean square and norm, and how many edges lead to the output."""

    name: str
    nodes: tuple[int, ...]
    names: Names
    rms: float
    norm: float
    depth: int


@check(
    "vanishing-gradient",
    "warning",
    "gradients shrink to nearly nothing on their way to the first modules",
    needs_values=True,
    follows=("nonfinite",),
    once=True,
)
def vanishing_gradient(context: CheckContext) -> Diagnoses:
    """The gradient of a module is less than 1e-5 of that of modules nearer to the output.

    Compared are root mean squares over the weights of each module of one model, along the depth of the graph. Such modules
    learn next to nothing. `--vanishing` sets another threshold.

    How it is found: The gradients are computed without writing `.grad`; root mean squares are compared module by module, from
    the output backwards.

    What to do: Use activations that do not saturate, normalisation, residual connections, or an initialisation made for the
    activation.

    When to ignore it: When these modules are meant to hardly move, or begin at zero.

    ```python
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())]
    model = torch.nn.Sequential(*layers)
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    ```
    """
    for layers in _models(context):
        yield from _vanishing(context, layers)


def _vanishing(context: CheckContext, layers: Sequence[Layer]) -> Diagnoses:
    limit = context.gradients.vanishing if context.gradients is not None else 0.0
    largest, weak = 0.0, list[Layer]()
    for layer in layers:
        if 0 < layer.rms < limit * largest and not context.zero_at_first.intersection(layer.names):
            weak.append(layer)
        largest = max(largest, layer.rms)
    if weak and main_path(context.graph, [layer.nodes for layer in layers], [layer.nodes for layer in weak]):
        last = min(weak, key=lambda layer: layer.rms)
        yield _flow(
            context.graph,
            weak,
            f"the gradient vanishes: {plural(len(weak), 'module')} of {len(layers)} get next to nothing",
            f"the root mean square of the gradient is {last.rms:.1e} in {last.name}, and {largest:.1e} nearer to "
            f"the output, a ratio of {last.rms / largest:.1e} (threshold {limit:g})",
            "Use ReLU-like activations, normalisation, residual connections, or an initialisation made for the "
            "activation.",
        )


@check(
    "exploding-gradient",
    "warning",
    "gradients grow without bounds on their way to the first modules",
    needs_values=True,
    follows=("nonfinite",),
    once=True,
)
def exploding_gradient(context: CheckContext) -> Diagnoses:
    """The gradient of a module is more than 1e4 times that of the module nearest to the output, or has a norm above 1e7.

    Compared are root mean squares over the weights of each module of one model, along the depth of the graph. One step of the
    optimizer then throws these modules far away. `--exploding` sets another ratio.

    How it is found: The gradients are computed without writing `.grad`; root mean squares are compared module by module, from
    the output backwards.

    What to do: Normalise, initialise with smaller weights, or clip with `torch.nn.utils.clip_grad_norm_`.

    When to ignore it: When the loss is scaled by a large factor that is divided out before the update.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(12)))
    for layer in model:
        torch.nn.init.normal_(layer.weight, std=3.0)
    loss = model(torch.randn(4, 8)).mean()
    loss.backward()
    ```
    """
    for layers in _models(context):
        yield from _exploding(context, [layer for layer in layers if layer.rms])


def _exploding(context: CheckContext, layers: Sequence[Layer]) -> Diagnoses:
    limit = context.gradients.exploding if context.gradients is not None else 0.0
    huge = [layer for layer in layers if layer.rms > limit * layers[0].rms or layer.norm > HUGE]
    if huge:
        worst, nearest = max(huge, key=lambda layer: layer.rms), layers[0]
        ratio, why = worst.rms / nearest.rms, f"the gradient of {worst.name} has a norm of {worst.norm:.1e}"
        if ratio > limit:
            why += f"; its root mean square is {worst.rms:.1e}, and {nearest.rms:.1e} in {nearest.name}, nearest to the output: "
            why += f"a ratio of {ratio:.1e} (threshold {limit:g})"
        yield _flow(
            context.graph,
            huge,
            f"the gradient explodes: {plural(len(huge), 'module')} of {len(layers)} get a huge one",
            why,
            "Use normalisation, a smaller initialisation, or clip gradients with torch.nn.utils.clip_grad_norm_.",
        )._replace(follows=("wrong-backward", "scaler-order"))


_TIMES_ZERO = re.compile(r"(?<![\w.)])0(?:\.0*)?\s*\*(?!\*)|(?<!\*)\*\s*0(?:\.0*)?(?![\w.])")
"""A factor of 0 as code spells it."""
_STOPS = ("Relu", "Mul", "Threshold", "Hardtanh", "Clamp", "Round", "Sign", "Floor")
"""What can make zeros of a gradient."""
_LEVELS = 8  # nodes that are looked at above a leaf, one above the other


class _Cause(NamedTuple):
    """What may have made the zeros: words on it, what to do, and how bad that is. {names}, {code} are filled in."""

    why: str
    fix: str
    severity: Severity | None = None


_HOOK = _Cause(
    "hooks on {names} may change the gradient, and what is left is 0 everywhere",
    "Look at what the hook returns for an ordinary gradient: a mask or a factor in it makes zeros of all elements. A hook that "
    "only looks returns None.",
)
_FACTOR = _Cause(
    "{code} multiplies the term behind it by 0",
    "No change needed if the term only lets every parameter take part, as DistributedDataParallel asks. Else give it a weight.",
    "note",
)
_FED = _Cause(
    "{code} multiplies its input with {names}, and every element of that input is 0",
    "Look at what makes this input: a state that is not handed on from step to step, a dropout with p=1, or data that is 0.",
)
_START = _Cause(
    "all elements of {names} are 0 themselves: where weights are multiplied with each other, as in LoRA's B @ A, the gradient of "
    "each is the other one times something, so they never move",
    "Begin with one factor of each product at zero and the other at random numbers: torch.nn.init.normal_({first}, std=0.02).",
)
_BEHIND_START = _Cause(
    "it comes only through layers whose weights are all 0 still, as those of a ControlNet are before the first step",
    "No change needed if these layers are to begin at zero: from the second step on the gradient passes them.",
    "note",
)
_BY_ZEROS = _Cause(
    "it comes only through {code}, which multiplies by numbers that are all 0",
    "Look at what makes these numbers: the mean of a group of one takes away all of it, a mask may have no element that counts, "
    "and a fraction that is written to a tensor of integers becomes 0.",
)
_STOP = _Cause(
    "backward computes a gradient for it, and every element is 0; on the way is {code}, which can stop it",
    "Look for dead ReLUs (all inputs negative), masks and factors of zero; for a layer that begins at zero it is normal in the "
    "first step.",
)
_NOTHING = _Cause(
    "backward computes a gradient for it, and every element is 0",
    "No change needed if the parameter cancels out, as the last bias does in a difference of two scores. Otherwise look for a "
    "factor of zero.",
    "note",
)


@check(
    "zero-gradient",
    "warning",
    "a parameter gets a gradient of zeros only",
    needs_values=True,
    follows=("zero-derivative",),
    once=True,
)
def zero_gradient(context: CheckContext) -> Diagnoses:
    """Every element of a parameter's gradient is exactly zero, although the parameter is in the graph.

    Two weights that are multiplied with each other and both begin at zero do that, dead ReLUs, a mask or a multiplication with
    zero, and rounding; without any of those on the way it is a note. With one layer that begins at zero (LoRA, zero-initialised
    residuals) it is expected at the first step: a parameter that gets a gradient at another of the backward calls is not reported.

    How it is found: The gradients are computed without writing `.grad`, and their elements counted that are exactly zero.

    What to do: Look for ReLUs whose inputs are all negative, for masks, for factors of zero, and for two layers in a row that
    both begin at zero.

    When to ignore it: When a layer begins at zero and the gradient comes with the second step. A factor of 0 that is written
    in the code, as in `loss + 0.0 * unused.sum()`, is a note.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    torch.nn.init.constant_(model[0].bias, -100.0)
    loss = model(torch.ones(2, 3)).sum()
    loss.backward()
    ```
    """
    zero = [leaf for leaf in leaves_of(context, zeros=True) if not context.nonzero_later.intersection(leaf.names)]
    if zero:
        names = first_names(zero)
        cause, source = _zeroed(context, zero)
        yield Diagnosis(
            f"the gradient of {listed(names)} is all zero",
            names,
            cause.why.format(names=listed(names), code=code(source)),
            cause.fix.format(first=as_code(names[0])) if names else cause.fix,
            nodes_of(zero),
            where=places(listed(dict.fromkeys(name.rpartition(".")[0] for name in names)), line(source)),
            severity=cause.severity,
            source=source,
            follows=("loss-input",),
        )


def _zeroed(context: CheckContext, zero: Sequence[Leaf]) -> tuple[_Cause, SourceLine | None]:
    """What may have made the zeros, and the line that did."""
    if all(leaf.hooks for leaf in zero):
        some = any(leaf.hooks for leaf in leaves_of(context, zeros=False))  # then these may be frozen so
        return _HOOK._replace(severity="note" if some else None), None
    graph = context.graph
    stuck = [leaf for leaf in zero if leaf.node in context.zero_weights]
    if len(stuck) > 1:
        return _START, None
    if not context.looked_after and _behind_zero_weights(context, zero):
        return _BEHIND_START, None
    fed = _fed_zeros(context, zero)
    if fed:  # a state is zero at the first call
        return _FED._replace(severity=None if context.looked_after else "note"), made_at(graph, fed[0])
    return _stopped(context, zero)


def _stopped(context: CheckContext, zero: Sequence[Leaf]) -> tuple[_Cause, SourceLine | None]:
    """The operation above these leaves that a gradient does not pass, if one is known."""
    graph = context.graph
    above = [] if _only_biases(first_names(zero)) else sorted(_above(graph, nodes_of(zero)))
    lines = [at for i in above if graph.nodes[i].op.startswith(_STOPS) and (at := made_at(graph, i)) is not None]
    for written in lines:
        if _TIMES_ZERO.search(written.text):
            return _FACTOR, written
    product = _by_zeros(context, zero)
    if product is not None:
        return _BY_ZEROS, made_at(graph, product)
    return (_STOP, lines[0]) if lines else (_NOTHING, None)


def _fed_zeros(context: CheckContext, zero: Sequence[Leaf]) -> list[int]:
    """The layers with these weights, where the input of all of them is zero."""
    graph = context.graph
    layers = {user for leaf in nodes_of(zero) for user in users(graph, leaf)}
    layers.update(user for i in [*layers] if kind(graph, i) == "T" for user in users(graph, i))
    layers = {i for i in layers if kind(graph, i) in _LAYERS}
    fed = sorted(layers.intersection(context.fed_zeros))
    if len(fed) < len(layers):
        return []
    return [i for i in fed if not any(kind(graph, maker).endswith("Relu") for maker in makers(graph, i))]


_LAYERS = "Addmm", "Mm"


def _behind_zero_weights(context: CheckContext, zero: Sequence[Leaf]) -> bool:
    """Whether each way from the outputs to these leaves leads through a layer whose weights are all zero."""
    graph = context.graph
    weighs = {user for leaf in context.zero_weights for user in users(graph, leaf)}
    layers = {user for i in weighs if kind(graph, i) == "T" for user in users(graph, i)} | weighs
    ways = {*spread(nodes_of(zero), lambda i: () if i in layers else users(graph, i))}
    return not ways.isdisjoint(layers) and not any(root.node in ways - layers for root in graph.roots)


def _by_zeros(context: CheckContext, zero: Sequence[Leaf]) -> int | None:
    """The first product with data that is all zero, where each way from the outputs to these leaves leads through such a one."""
    graph = context.graph
    products = {i for i in context.fed_zeros if kind(graph, i) == "Mul" and graph.nodes[i].none_inputs}
    ways = {*spread(nodes_of(zero), lambda i: () if i in products else users(graph, i))}
    past = any(root.node in ways and root.node not in products for root in graph.roots)
    return min(ways & products, default=None) if not past else None


def _only_biases(names: Sequence[str]) -> bool:
    """Whether these are biases without the weights beside them: a bias alone may cancel out, in a difference or before a norm."""
    biases = [name for name in names if name.rpartition(".")[2].startswith("bias")]
    return len(biases) == len(names) and not any(name.replace("bias", "weight") in names for name in biases)


def _above(graph: Graph, nodes: Sequence[int]) -> set[int]:
    """What some nodes lead to, a few nodes up."""
    above, frontier = set[int](), list(nodes)
    for _ in range(_LEVELS):
        frontier = [user for node in frontier for user in users(graph, node)][:50]
        above.update(frontier)
    return above


def leaves_of(context: CheckContext, *, zeros: bool) -> list[Leaf]:
    """The parameters whose gradient is known to be all zero, or not to be."""
    return [leaf for leaf, gradient in _read(context) if (gradient.zeros == 1.0) == zeros]


def _models(context: CheckContext) -> list[list[Layer]]:
    """The modules of each model with the size of their gradients, the nearest to the output first; parameters of none together.

    Weights are compared with weights: a bias, or the scale of a norm, counts only where a model has nothing else.
    """
    depth, owner = _depth(context.graph), {parameter.node: parameter.model for parameter in context.parameters}
    models: dict[int | None, _Members] = {}
    for leaf, gradient in _read(context):
        models.setdefault(owner.get(leaf.node), []).append((leaf, gradient))
    weights = [[one for one in members if len(one[0].tensor.shape or ()) > 1] or members for members in models.values()]
    return [_layers(members, depth) for members in weights]


def _layers(members: _Members, depth: Sequence[int]) -> list[Layer]:
    """Modules with the size of their gradients, the nearest to the output first. Without modules, each parameter is one."""
    groups: dict[str, _Members] = {}
    for leaf, gradient in members:
        name = leaf.names[0] if leaf.names else f"parameter {leaf.node}"
        groups.setdefault(name.rpartition(".")[0] or name, []).append((leaf, gradient))
    layers = []
    for name, group in groups.items():
        leaves = [leaf for leaf, _ in group]
        norm = sum(gradient.norm**2 for _, gradient in group) ** 0.5
        rms = norm / max(1, sum(known_elements(leaf.tensor) for leaf in leaves)) ** 0.5
        nearest = min(depth[leaf.node] for leaf in leaves)
        layers.append(Layer(name, nodes_of(leaves), first_names(leaves), rms, norm, nearest))
    return sorted(layers, key=lambda layer: layer.depth)


def _read(context: CheckContext) -> Iterator[tuple[Leaf, LeafGradient]]:
    """The parameters whose gradient is known and of this call alone."""
    for gradient in context.leaf_gradients:
        leaf = context.graph.leaf_of[gradient.node]
        if leaf.kind == "parameter" and not gradient.nonfinite and not gradient.mixed:
            yield leaf, gradient


def _depth(graph: Graph) -> list[int]:
    """Edges on the shortest way from an output."""
    depths = [-1] * len(graph.nodes)
    queue = [root.node for root in graph.roots if root.node is not None]
    for node in queue:
        depths[node] = 0
    for node in queue:  # grows while it is read
        for edge in graph.inputs(node):
            if depths[edge.producer] < 0:
                depths[edge.producer] = depths[node] + 1
                queue.append(edge.producer)
    return depths


def _flow(graph: Graph, layers: Sequence[Layer], summary: str, why: str, fix: str) -> Diagnosis:
    """What is said of these modules, at the line that uses most of them."""
    names = tuple(name for layer in layers for name in layer.names)
    users = (graph.nodes[edge.consumer] for layer in layers for node in layer.nodes for edge in graph.consumers(node))
    lines = Counter(source for user in users if (source := own_line(user)) is not None)
    source = lines.most_common(1)[0][0] if lines else None
    return Diagnosis(
        summary,
        names,
        why,
        fix,
        tuple(node for layer in layers for node in layer.nodes),
        where=places(listed(layer.name for layer in layers), line(source)),
        source=source,
        follows=("wrong-backward",),
    )
