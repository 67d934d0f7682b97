"""Checks that read the numbers of gradients: those that vanish, explode or are zero."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradviz.checks.context import CheckContext, LeafGradient
from gradviz.checks.flow import behind, main_path
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import Names, code, first_names, line, listed, nodes_of, places, verb
from gradviz.graph import Graph, Leaf
from gradviz.graph.amounts import known_elements
from gradviz.graph.origins import own_line
from gradviz.source.search import calls_method
from gradviz.wording import one_line, plural

HUGE = 1e7
"""`exploding-gradient`: a gradient with a norm above this is called huge even when those of all modules are. Loss scaling, as
mixed precision uses it, stays below."""


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
    if not layers or context.gradients is None:
        return
    limit, nearest = context.gradients.exploding, layers[0]
    huge = [layer for layer in layers if layer.rms > limit * nearest.rms or layer.norm > HUGE]
    if huge:
        worst = max(huge, key=lambda layer: layer.rms)
        ratio = worst.rms / nearest.rms
        why = f"the gradient of {worst.name} has a norm of {worst.norm:.1e}"
        if ratio > limit:
            why += (
                f"; its root mean square is {worst.rms:.1e}, and {nearest.rms:.1e} in {nearest.name}, nearest to the output: "
                f"a ratio of {ratio:.1e} (threshold {limit:g})"
            )
        yield _flow(
            context.graph,
            huge,
            f"the gradient explodes: {plural(len(huge), 'module')} of {len(layers)} get a huge one",
            why,
            "Use normalisation, a smaller initialisation, or clip gradients with torch.nn.utils.clip_grad_norm_.",
        )


_TIMES_ZERO = re.compile(r"(?<![\w.)])0(?:\.0*)?\s*\*(?!\*)|(?<!\*)\*\s*0(?:\.0*)?(?![\w.])")
"""A factor of 0 as code spells it."""


@check(
    "zero-gradient",
    "warning",
    "a parameter gets a gradient of zeros only",
    needs_values=True,
    follows=("zero-derivative", "all-zero", "zero-start"),
    once=True,
)
def zero_gradient(context: CheckContext) -> Diagnoses:
    """Every element of a parameter's gradient is exactly zero, although the parameter is in the graph.

    Dead ReLUs do that, a mask or a multiplication with zero, and rounding; without any of those on the way it is a note. With a
    layer that begins at zero (LoRA, zero-initialised residuals) it is expected at the first step: a parameter that gets a
    gradient at another of the backward calls is not reported.

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
    graph = context.graph
    zero = [
        leaf
        for leaf, gradient in _read(context)
        if gradient.zeros == 1.0 and not context.nonzero_later.intersection(leaf.names)
    ]
    if not zero:
        return
    names = first_names(zero)
    if all(leaf.hooks for leaf in zero):
        yield _by_a_hook(context, names, nodes_of(zero))
        return
    alone = all(name.rpartition(".")[2].startswith("bias") and not _weight_too(name, names) for name in names)
    above = {i for leaf in zero for i in _above(graph, leaf.node)} if not alone else set()
    blame = sorted(i for i in above if graph.nodes[i].op.startswith(_STOPS))
    stops = sorted({graph.nodes[i].op for i in blame})
    source = own_line(graph.nodes[blame[0]]) if blame else None
    written = next((made for i in blame if (made := own_line(graph.nodes[i])) and _TIMES_ZERO.search(made.text)), None)
    if written is not None:
        yield Diagnosis(
            f"the gradient of {listed(names)} is all zero, by a factor of 0 in the code",
            names,
            f"{code(written)} multiplies the term behind it by 0",
            "No change needed if the term only lets every parameter take part, as DistributedDataParallel asks. "
            "Otherwise give it a weight.",
            nodes_of(zero),
            severity="note",
            source=written,
            follows=("zero-start",),
        )
        return
    yield Diagnosis(
        f"the gradient of {listed(names)} is all zero",
        names,
        "backward computes a gradient for it, and every element is 0"
        + (f"; on the way is {listed(stops, 3)}, which can stop it" if blame else ""),
        "Look for dead ReLUs (all inputs negative), masks and factors of zero; for a layer that begins at zero it "
        "is normal in the first step."
        if blame
        else "No change needed if the parameter cancels out, as the last bias does in a difference of two scores. "
        "Otherwise look for a factor of zero.",
        nodes_of(zero),
        where=places(listed(dict.fromkeys(name.rpartition(".")[0] for name in names)), line(source)),
        severity=None if blame else "note",
        source=source,
        follows=("zero-start",),
    )


@check(
    "dead-relu",
    "warning",
    "a layer of ReLUs has come to give zero for every input",
    needs_values=True,
    follows=("nonfinite", "exploding-gradient"),
    once=True,
)
def dead_relu(context: CheckContext) -> Diagnoses:
    """All ReLUs of a layer give zero for every sample: what is in front of them gets no gradient any more, and never recovers.

    A step that is too large does that, or inputs that are large numbers: the biases become so negative that nothing comes through.

    How it is found: The gradient of a weight behind ReLUs was other than zero, and from a call on it is exactly zero, while that of
    the bias beside it is not. What the weight is multiplied with is zero then. It has to stay so for several calls.

    What to do: Scale the inputs to about 1, lower the learning rate, or use LeakyReLU.

    When to ignore it: When the layer is switched off on purpose.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        x = torch.rand(16, 8) * 255
        loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 128).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    graph = context.graph
    read = list(_read(context))
    zero = [leaf for leaf, gradient in read if gradient.zeros == 1.0]
    died = [
        leaf
        for leaf in zero
        if context.nonzero_later.intersection(leaf.names) and not context.nonzero_after.intersection(leaf.names)
    ]
    alive = {leaf.node for leaf, gradient in read if gradient.zeros < 1.0}
    for leaf in died if context.looked_after >= _AFTER else ():
        relu = _dead_in_front(graph, leaf.node, alive)
        if relu is None:
            continue
        source, weight = own_line(graph.nodes[relu]), one_line(leaf.names[0])
        behind_it = set(behind(graph, [relu]))
        names = first_names(other for other in died if other.node in behind_it) or leaf.names[:1]
        yield Diagnosis(
            f"the ReLUs in front of {weight.rpartition('.')[0] or weight} are dead: they give zero for every input",
            names,
            f"at backward call {context.call} and all that were looked at since, the gradient of {weight} is exactly 0 and that of "
            "the bias beside it is not: what the weight is multiplied with is 0. Before, it had a gradient. Nothing in front of "
            f"{code(source)} learns any more",
            "Scale the inputs to about 1, as in x = (x - x.mean(0)) / x.std(0), and lower the learning rate, tenfold at a time; or "
            "use torch.nn.LeakyReLU, which lets a gradient through.",
            (relu, leaf.node),
            where=places(listed(dict.fromkeys(name.rpartition(".")[0] for name in names)), line(source)),
            source=source,
        )
        return


@check(
    "saturated",
    "warning",
    "hidden layers of tanh or sigmoid are flat for nearly all inputs from the start",
    follows=("nonfinite", "vanishing-gradient", "exploding-gradient"),
    once=True,
)
def saturated(context: CheckContext) -> Diagnoses:
    """The results of tanh or sigmoid lie next to their limits, where the slope is zero: hardly any gradient comes through.

    Weights that are drawn from a normal distribution of width 1 do that, whatever the number of inputs, and so do inputs that are
    large numbers.

    How it is found: What tanh and sigmoid have saved at the first backward call is read. Reported when in two hidden layers or
    more, and in most of them, two thirds of the results are within a thousandth of a limit. A gate, which multiplies, is left out.

    What to do: Initialise for the number of inputs, as `torch.nn.init.xavier_normal_` does, and scale inputs to about 1.

    When to ignore it: When results next to the limits are meant, as in a network of bits that was trained before.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(part for _ in range(3) for part in (torch.nn.Linear(256, 256), torch.nn.Tanh())))
    model.append(torch.nn.Linear(256, 1))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    loss = model(torch.randn(8, 256)).square().mean()
    loss.backward()
    ```
    """
    graph = context.graph
    if not context.saturated:
        return
    hidden = [weights for node in graph.nodes if (weights := _hidden(graph, node.id))]
    flat = [weights for weights in hidden if weights[0] in context.saturated]
    if len(flat) < 2 or 2 * len(flat) <= len(hidden):
        return
    names = first_names(graph.leaf_of[weight] for _, weight in flat)
    source = next((context.filled[name] for name in names if name in context.filled), None)
    if source is None or not any(call in source.text for call in ("normal_", "uniform_")):
        source = own_line(graph.nodes[flat[-1][0]])
    what = graph.nodes[flat[0][0]].op.partition("Backward")[0].lower()
    yield Diagnosis(
        f"{len(flat)} of {len(hidden)} hidden layers of {what} are saturated from the start",
        names,
        f"at the first backward call, two thirds of what {what} gave or more is within a thousandth of its limits, where its slope "
        f"is next to zero: behind {listed(names, 3)}",
        "Draw the weights for the number of inputs: torch.nn.init.xavier_normal_(weight) in place of normal_(weight); and scale "
        "the inputs of the model to about 1.",
        tuple(node for node, _ in flat),
        where=places(listed(dict.fromkeys(name.rpartition(".")[0] for name in names), 3), line(source)),
        source=source,
    )


def _hidden(graph: Graph, node: int) -> tuple[int, int] | None:
    """A tanh or sigmoid between two products with weights: it, and the weight of the first product."""
    if _kind(graph, node) not in ("Tanh", "Sigmoid"):
        return None
    user = node
    while True:
        edges = graph.consumers(user)
        if len(edges) != 1:
            return None
        user = edges[0].consumer
        if _kind(graph, user) not in _MOVES and _kind(graph, user) != "NativeDropout":
            break
    if _kind(graph, user) not in _LAYER or _weight(graph, user) is None:
        return None
    made = graph.inputs(node)
    while made and _kind(graph, made[0].producer) in (*_MOVES, "Add") and made[0].producer not in graph.leaf_of:
        made = graph.inputs(made[0].producer)
    if not made or _kind(graph, made[0].producer) not in _LAYER:
        return None
    weight = _weight(graph, made[0].producer)
    return (node, weight) if weight is not None else None


def _weight(graph: Graph, product: int) -> int | None:
    """The leaf with two dimensions or more that a product is taken with."""
    for edge in graph.inputs(product):
        leaf = edge.producer
        while leaf not in graph.leaf_of and _kind(graph, leaf) in _MOVES and len(graph.inputs(leaf)) == 1:
            leaf = graph.inputs(leaf)[0].producer
        shape = graph.leaf_of[leaf].tensor.shape if leaf in graph.leaf_of else None
        if shape is not None and len(shape) > 1:
            return leaf
    return None


_AFTER = 3  # calls that were looked at later, in which a gradient has to be zero as well
_LAYER = ("Addmm", "Convolution", "Mm")
_MOVES = ("T", "Transpose", "View", "UnsafeView", "ToCopy", "Reshape", "Permute", "Clone")
_KEEPS = (*_MOVES, "NativeDropout", "Mul", "MaxPool2DWithIndices", "AvgPool2D", "AdaptiveAvgPool2D", "Mean")


def _added(graph: Graph, product: int) -> Iterator[int]:
    """The terms of the additions that take a product, behind changes of shape."""
    above = graph.consumers(product)
    while len(above) == 1 and _kind(graph, above[0].consumer) in _MOVES:
        above = graph.consumers(above[0].consumer)
    for edge in above:
        if _kind(graph, edge.consumer) == "Add":
            yield from (other.producer for other in graph.inputs(edge.consumer))


def _dead_in_front(graph: Graph, weight: int, alive: set[int]) -> int | None:
    """The ReLU whose results a weight is multiplied with, when a bias is added to the product that has a gradient."""
    user = weight
    while True:
        edges = graph.consumers(user)
        if len(edges) != 1:
            return None
        below, user = user, edges[0].consumer
        if _kind(graph, user) not in _MOVES:
            break
    if _kind(graph, user) not in _LAYER:
        return None
    given = [edge.producer for edge in graph.inputs(user)]
    if alive.isdisjoint([*given, *_added(graph, user)]):
        return None
    for node in given:
        while node != below and _kind(graph, node) in _KEEPS and len(graph.inputs(node)) == 1:
            node = graph.inputs(node)[0].producer
        if graph.nodes[node].op.startswith(("Relu", "Threshold")):
            return node
    return None


def _kind(graph: Graph, node: int) -> str:
    return graph.nodes[node].op.partition("Backward")[0].lstrip("_")


_LEVELS = 8  # nodes that are looked at above a leaf, one above the other
_STOPS = ("Relu", "Mul", "Threshold", "Hardtanh", "Clamp", "Round", "Sign", "Floor")
"""What can make zeros of a gradient."""


def _by_a_hook(context: CheckContext, names: Names, nodes: tuple[int, ...]) -> Diagnosis:
    """The leaves have hooks, which give what is left in `.grad`."""
    file = context.backward.file if context.backward is not None else ""
    source = next((made for _, made in calls_method(file, "register_hook", bare=False)), None) if file else None
    return Diagnosis(
        f"the gradient of {listed(names)} is all zero behind {verb(nodes, 'its hook', 'their hooks')}",
        names,
        f"{verb(nodes, 'a hook', 'hooks')} on {verb(nodes, 'it', 'them')} may change the gradient, and what is left is 0 everywhere"
        + (f"; {code(source)}" if source is not None else ""),
        "Look at what the hook returns for an ordinary gradient: a mask or a factor in it makes zeros of all elements. A hook that "
        "only looks returns None.",
        nodes,
        where=line(source) or listed(names),
        source=source,
    )


def _weight_too(bias: str, names: Sequence[str]) -> bool:
    """Whether the weight beside a bias is among the names: a bias alone may cancel out, in a difference or before a norm."""
    module, _, own = bias.rpartition(".")
    return f"{module}.{own.replace('bias', 'weight')}".lstrip(".") in names


def _above(graph: Graph, node: int) -> list[int]:
    """What a leaf leads to, a few nodes up."""
    above, frontier = [], [node]
    for _ in range(_LEVELS):
        frontier = [edge.consumer for i in frontier for edge in graph.consumers(i)][:50]
        above += frontier
    return above


def _models(context: CheckContext) -> list[list[Layer]]:
    """The modules of each model with the size of their gradients, the nearest to the output first; parameters of none together.

    Weights are compared with weights: a bias, or the scale of a norm, counts only where a model has nothing else.
    """
    depth, owner = _depth(context.graph), {parameter.node: parameter.model for parameter in context.parameters}
    models: dict[int | None, list[tuple[Leaf, LeafGradient]]] = {}
    for leaf, gradient in _read(context):
        models.setdefault(owner.get(leaf.node), []).append((leaf, gradient))
    weights = [[one for one in members if len(one[0].tensor.shape or ()) > 1] or members for members in models.values()]
    return [_layers(members, depth) for members in weights]


def _layers(members: Sequence[tuple[Leaf, LeafGradient]], depth: Sequence[int]) -> list[Layer]:
    """Modules with the size of their gradients, the nearest to the output first. Without modules, each parameter is one."""
    groups: dict[str, list[tuple[Leaf, LeafGradient]]] = {}
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
    )
