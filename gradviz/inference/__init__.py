"""Which module ran each operation of a graph that nobody recorded: a guess, from what
the graph and the model tell.

`infer_scopes` is the one public function. It goes in three steps:

1. `anchors`: who owns a parameter worked with it, so its operations are certain,
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
from collections.abc import Container, Mapping
from dataclasses import replace

from gradviz.graph import Graph, Scope
from gradviz.graph.origins import Ownership, Registered, around
from gradviz.inference.alignment import Alignment
from gradviz.inference.anchors import Anchoring, Anchors
from gradviz.inference.order import ForwardOrder, InferredCall, find_calls


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

    order = ForwardOrder(graph)
    anchors = Anchoring(graph, ownership, order.inputs).anchors()
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
