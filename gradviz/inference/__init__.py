"""Which module ran each operation of a graph that nobody recorded: a guess, from what
the graph and the model tell.

`infer_scopes` is the one public function. During the walk, `ownership` notes the modules,
their parameters, and what their code says (`forwards`). The rest knows no torch, and
goes in four steps:

1. `order`: operations by the order in which they ran. A position is a place in it.
2. `anchors`: an operation that works with a parameter belongs to the parameter's module.
3. `calls`: a call of a module is an interval of positions, from its first anchor to its
   last; where the same anchors repeat, there are several.
4. `alignment`: the operations between two anchors are aligned with what may run there
   (`routes`: each route that the code of the modules around leaves open). This widens
   the calls, and finds those of modules without parameters, such as ReLU.

`layers` is a table: which operations are recorded for what code calls by a name.
The scopes are marked `attribution="inferred"`: nobody saw the calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gradviz.graph import Graph, Scope
from gradviz.graph.origins import Ownership, Registered, around
from gradviz.inference.alignment import Alignment
from gradviz.inference.anchors import find_anchors
from gradviz.inference.calls import InferredCall, find_calls
from gradviz.inference.order import ForwardOrder


def infer_scopes(graph: Graph, ownership: Ownership) -> Graph:
    """The same graph with a scope for each operation where that can be told.

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

    modules, order = ownership.modules, ForwardOrder(graph)
    anchors = find_anchors(graph, ownership, order)
    calls, call_of = find_calls(modules, anchors)
    calls += Alignment(modules, order, anchors, calls, call_of).fill_gaps()
    calls.sort(key=lambda call: (call.start, call.module))  # outer ones first

    scope_at: list[int | None] = [None] * len(order)
    for scope, call in enumerate(calls):
        scope_at[call.start : call.end + 1] = [scope] * (call.end + 1 - call.start)

    scope_of = dict(zip(order.nodes, scope_at))
    first_call = {call.module: scope for scope, call in reversed([*enumerate(calls)])}
    for leaf, owners in ownership.owners.items():
        outers = (outer for owner in owners for outer in around(modules, owner))
        scope_of[leaf] = next(
            (first_call[outer] for outer in outers if outer in first_call), None
        )

    nodes = tuple(
        node
        if node.scope == scope_of.get(node.id)
        else node._replace(scope=scope_of.get(node.id))
        for node in graph.nodes
    )
    scopes = _scopes(modules, calls)
    return replace(graph, nodes=nodes, scopes=scopes, attribution="inferred")


def _scopes(
    modules: Sequence[Registered], calls: Sequence[InferredCall]
) -> tuple[Scope, ...]:
    """Calls as scopes, in the same order."""
    scopes: list[Scope] = []
    number: dict[InferredCall | None, int | None] = {None: None}
    times: Counter[int] = Counter()
    for call in calls:
        path, kind, _, _, parameters, *_ = modules[call.module]
        times[call.module] += 1
        parent = number[call.parent]
        number[call] = len(scopes)
        scopes.append(Scope(path, kind, times[call.module], parent, parameters))

    return tuple(scopes)
