"""Which module ran each operation of a graph that nobody recorded: a guess, from what
the graph and the model tell.

`infer_scopes` is the one public function. It goes in three steps:

1. `find_anchors`: who owns a parameter worked with it, so its operations are certain,
   or nearly.
2. `order.find_calls`: operations ran in an order, and a call is an interval of it;
   where the same things repeat, it is several.
3. `alignment`: what lies between two that are certain is compared with what the code of
   the modules around says that comes there (`scripts`).

`forwards` reads that code during the walk. `order` holds the operations as they ran,
`layers` what code makes that is called so. All but `forwards` and `ownership` know no
torch, and no recording. What is found is marked `attribution="inferred"`: nobody saw
the calls.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from gradviz.graph import Graph, Scope
from gradviz.graph.origins import Ownership, Registered, around, common
from gradviz.inference.alignment import Alignment
from gradviz.inference.layers import ELEMENTWISE, PARAMETRIZED, PRODUCTS, VIEWS, stem_of
from gradviz.inference.order import ForwardOrder, InferredCall, find_calls, inputs_of

_RESHAPING = ELEMENTWISE | frozenset(
    (
        "Sqrt",
        "Log",
        "Softplus",
        "Softmax",
        "LinalgVectorNorm",
        "Norm",
        "WeightNormInterface",
        "Cat",
        "Repeat",
    )
)
_LAYERS = frozenset(("Convolution", "ThnnConv2D", "Embedding", "EmbeddingBag"))


Inputs = Sequence[Sequence[int]]
"""By node the nodes that it takes its inputs from."""


class Anchors(NamedTuple):
    """By node id: the module whose parameters an operation works with, or None; and the
    leaves that they are.
    """

    module: list[int | None]
    uses: list[tuple[int, ...]]


def find_anchors(graph: Graph, ownership: Ownership, inputs: Inputs) -> Anchors:
    """Operations that consume parameters, directly or through what is computed from
    parameters alone, as views of them are.

    With parameters of several modules, an operation belongs to the innermost module
    around all of them.
    """
    uses, is_weight = _uses(graph, ownership, inputs)
    turned = _turned_weights(graph, inputs)
    modules = ownership.modules
    module: list[int | None] = []
    for i, leaves in enumerate(uses):
        op = graph.nodes[i].op
        owners = [_owner(ownership, leaf, op) for leaf in leaves]
        owner = common(modules, owners) if owners else None
        if owner is not None:
            owner = _caller(modules, owner, op, is_weight[i] and i not in turned)
        module.append(owner)

    return Anchors(module, uses)


def _owner(ownership: Ownership, leaf: int, op: str) -> int:
    """The module that holds a parameter; of several the innermost that makes such
    operations: an embedding looks up, the others multiply.
    """
    modules, owners = ownership.modules, ownership.owners[leaf]
    looks_up = op.startswith("Embedding")
    fitting = [owner for owner in owners if _looks_up(modules[owner]) == looks_up]
    return max(fitting or owners, key=lambda owner: len([*around(modules, owner)]))


def _looks_up(module: Registered) -> bool:
    steps = module.steps or ()
    return module.base == "Embedding" or any(name == "embedding" for _, name in steps)


def _caller(
    modules: Sequence[Registered], owner: int, op: str, is_weight: bool
) -> int | None:
    """The module that ran an operation on parameters of `owner`, which another one may
    have read.

    A list of parametrizations makes weights, and the module around it works with them.
    An embedding only looks up.
    """
    for module in around(modules, owner):
        base = modules[module].base
        weighs_only = base == PARAMETRIZED or (
            base == "Embedding" and not op.startswith("Embedding")
        )
        if is_weight or not weighs_only:
            return module
    return None


def _turned_weights(graph: Graph, inputs: Inputs) -> set[int]:
    """Transpositions right before a product of matrices, which a linear layer makes of
    any weight, parametrized or not.
    """
    turned: set[int] = set()
    for node, producers in zip(graph.nodes, inputs):
        if stem_of(node.op) in PRODUCTS:
            ops = {producer: graph.nodes[producer].op for producer in producers}
            turned.update(i for i, op in ops.items() if op.startswith("TBackward"))
    return turned


def _uses(
    graph: Graph, ownership: Ownership, inputs: Inputs
) -> tuple[list[tuple[int, ...]], list[bool]]:
    """The leaves that each operation works with, and whether what it makes is a
    parameter again.
    """
    uses, origin = _origins(graph, ownership, inputs)
    reaches = bytearray(len(graph.nodes))  # whether something else is computed with it
    for i in graph.order:
        reaches[i] |= bool(uses[i]) and not origin[i]
        if reaches[i]:
            for producer in inputs[i]:
                reaches[producer] |= bool(origin[producer])
    return [used if reaches[i] else () for i, used in enumerate(uses)], [
        *map(bool, origin)
    ]


def _origins(
    graph: Graph, ownership: Ownership, inputs: Inputs
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The leaves that each operation works with, and those that it computes a parameter
    from again.
    """
    # of what is computed from parameters alone
    origin: list[tuple[int, ...]] = [()] * len(graph.nodes)
    uses: list[tuple[int, ...]] = [()] * len(graph.nodes)
    parametrized = set()
    for leaf, owners in ownership.owners.items():
        bases = {ownership.modules[owner].base for owner in owners}
        if bases <= {PARAMETRIZED}:
            parametrized.add(leaf)

    for i in reversed(graph.order):
        if i in ownership.owners:
            origin[i] = (i,)
        sources = [origin[producer] for producer in inputs[i]]
        used = tuple(dict.fromkeys(chain.from_iterable(sources)))
        if not used:
            continue
        alone = all(sources)
        in_list = (
            alone
            and parametrized.issuperset(used)
            and not _is_layer(graph, i, inputs[i])
        )
        if _is_number(graph, i) and not in_list:
            continue  # a penalty on weights is no layer
        uses[i] = used
        if in_list or (alone and _reshapes(graph, i)):
            origin[i] = used

    return uses, origin


def _is_layer(graph: Graph, node: int, inputs: Sequence[int]) -> bool:
    """Whether an operation works with a finished weight: a convolution, a look-up, a
    product with what was turned for it.
    """
    stem = stem_of(graph.nodes[node].op)
    turned = any(
        graph.nodes[producer].op.startswith("TBackward") for producer in inputs
    )
    return stem in _LAYERS or (
        stem in PRODUCTS and turned and graph.nodes[node].none_inputs > 0
    )


def _reshapes(graph: Graph, node: int) -> bool:
    """Whether an operation makes a parameter of parameters; any other one computes with
    data, even if no gradient goes there.
    """
    stem = stem_of(graph.nodes[node].op)
    return stem in VIEWS or (stem in _RESHAPING and not graph.nodes[node].none_inputs)


def _is_number(graph: Graph, node: int) -> bool:
    outputs = graph.nodes[node].outputs
    return bool(outputs) and outputs[0] is not None and outputs[0].shape == ()


# -- scopes ----------------------------------------------------------------------------


def infer_scopes(graph: Graph, ownership: Ownership) -> Graph:
    """The same graph with a scope for each operation where that can be told.

    An operation belongs to the module that owns the parameters it consumes, directly or
    through views. Calls are intervals of the order in which operations ran: what
    consumes parameters of a module, with nothing of other modules between, is one call,
    or several where the same repeats. Between calls, an operation belongs to the module
    whose code says that such an operation comes there.

    A graph that was recorded, or of whose leaves no module is known, is returned as it
    is.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> nodes = (Node(0, "AddmmBackward0", sequence=1), Node(1, "TBackward0", sequence=0), Node(2, "AccumulateGrad"))
    >>> graph = Graph(nodes=nodes, edges=(Edge(0, 1, 0, 2), Edge(1, 2, 0, 0)))
    >>> modules = Registered("", "Net", "", None), Registered("fc", "Linear", "Linear", 0)
    >>> scoped = infer_scopes(graph, Ownership(modules, {2: (1,)}))
    >>> [scoped.scopes[node.scope].path for node in scoped.nodes]
    ['fc', 'fc', 'fc']
    """
    if graph.attribution == "recorded" or not ownership.owners:
        return graph

    inputs = inputs_of(graph)
    order = ForwardOrder(graph, inputs)
    anchors = find_anchors(graph, ownership, inputs)
    modules = ownership.modules
    # no forward of a module ran the backward of an operation's own backward
    backward = {
        node for node in graph.order if _BACKWARD.fullmatch(graph.nodes[node].op)
    }
    anchored = _by_position(order, anchors, backward)
    calls = find_calls(modules, order, anchored, anchors.uses)
    names = {}
    for position in anchored:
        used = anchors.uses[order.nodes[position]]
        names[position] = ownership.names.get(min(used, default=-1), "")
    alignment = Alignment(modules, order, calls, names)
    alignment.widen()
    calls.extend(_silent_calls(modules, alignment.made_by))
    scopes, number = _scopes(modules, calls)

    place: list[int | None] = [None] * len(graph.nodes)
    for call in sorted(calls, key=lambda call: call.module):  # outer ones first
        for position in range(call.start, call.end + 1):
            place[order.nodes[position]] = number[call]

    for node in backward:
        place[node] = None

    first = {
        call.module: number[call]
        for call in sorted(calls, key=lambda call: -call.start)
    }
    for leaf, owners in ownership.owners.items():
        outers = (outer for owner in owners for outer in around(modules, owner))
        place[leaf] = next((first[outer] for outer in outers if outer in first), None)

    nodes = tuple(
        node if node.scope == scope else node._replace(scope=scope)
        for node, scope in zip(graph.nodes, place)
    )

    return replace(graph, nodes=nodes, scopes=scopes, attribution="inferred")


def _by_position(
    order: ForwardOrder, anchors: Anchors, backward: Container[int]
) -> dict[int, int]:
    """The modules of the anchors, by their positions in the order."""
    modules: dict[int, int] = {}
    for i, node in enumerate(order.nodes):
        module = anchors.module[node]
        if module is not None and node not in backward:
            modules[i] = module

    return modules


_BACKWARD = re.compile(r"\w+Backward(Data)?Backward\d+")


def _silent_calls(
    modules: tuple[Registered, ...], made_by: Mapping[int, tuple[InferredCall, int]]
) -> list[InferredCall]:
    """Calls of modules without parameters: positions side by side that the same module
    made in the same call.
    """
    calls: list[InferredCall] = []
    for position in sorted(made_by):
        outer, module = made_by[position]
        if (
            calls
            and calls[-1].parent is outer
            and (calls[-1].module, calls[-1].end) == (module, position - 1)
        ):
            calls[-1].end = position
        else:
            call = InferredCall(module, position, position, [])
            call.parent = outer
            calls.append(call)

    return calls


def _scopes(
    modules: tuple[Registered, ...], calls: list[InferredCall]
) -> tuple[tuple[Scope, ...], dict[InferredCall, int]]:
    """Calls as scopes, in the order they began, outer ones first."""
    scopes: list[Scope] = []
    number: dict[InferredCall, int] = {}
    times: dict[int, int] = {}

    for call in sorted(calls, key=lambda call: (call.start, call.module)):
        module = modules[call.module]
        times[call.module] = times.get(call.module, 0) + 1
        number[call] = len(scopes)
        parent = number[call.parent] if call.parent is not None else None
        scopes.append(
            Scope(
                module.path, module.type, times[call.module], parent, module.parameters
            )
        )

    return tuple(scopes), number
