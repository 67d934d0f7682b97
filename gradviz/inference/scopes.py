"""Guesses the modules of a graph that was not recorded, from who owns the parameters and from the order in which ops ran.

Knows only the graph and what modules there are. What it finds is marked `attribution="inferred"`: nobody saw the calls.
"""

from __future__ import annotations

from dataclasses import replace

from gradviz.graph import Graph, Scope
from gradviz.graph.scopes import Ownership, Registered
from gradviz.inference.anchors import around, find_anchors
from gradviz.inference.calls import Call, find_calls
from gradviz.inference.extents import Extents
from gradviz.inference.order import Order, inputs_of


def infer_scopes(graph: Graph, ownership: Ownership) -> Graph:
    """The same graph with a scope for each operation where that can be told.

    An operation belongs to the module that owns the parameters it consumes, directly or through views. Calls are intervals of
    the order in which operations ran: what consumes parameters of a module, with nothing of other modules between, is one call,
    or several where the same repeats. Between calls, an operation belongs to where fewest values pass from one module to another,
    where all calls of a class agree, and where a module stands that makes such operations.

    A graph that was recorded, or of whose leaves no module is known, is returned as it is.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> nodes = (Node(0, "AddmmBackward0", sequence=1), Node(1, "TBackward0", sequence=0), Node(2, "AccumulateGrad"))
    >>> graph = Graph(nodes=nodes, edges=(Edge(0, 1, 0, 2), Edge(1, 2, 0, 0)))
    >>> modules = Registered("", "Net", "", None), Registered("fc", "Linear", "Linear", 0)
    >>> found = infer_scopes(graph, Ownership(modules, {2: (1,)}))
    >>> [found.scopes[node.scope].path for node in found.nodes]
    ['fc', 'fc', 'fc']
    """
    if graph.attribution == "recorded" or not ownership.owners:
        return graph
    inputs = inputs_of(graph)
    order = Order(graph, ownership.owners, inputs)
    anchors = find_anchors(graph, ownership, inputs)
    modules = ownership.modules
    anchored = {i: at for i, node in enumerate(order.nodes) if (at := anchors.module[node]) is not None}

    def depends(one: Call, other: Call) -> bool:
        return order.leads_to(range(one.start, one.end + 1), other.start, other.end)

    def uses(position: int) -> tuple[str, tuple[int, ...]]:
        return order.stems[position], anchors.uses[order.nodes[position]]

    calls = find_calls(modules, anchored, uses, depends)
    extents = Extents(modules, order, calls, anchored)
    extents.widen()
    calls.extend(_silent_calls(modules, extents))
    scopes, number = _scopes(modules, calls)
    place: list[int | None] = [None] * len(graph.nodes)
    for call in sorted(calls, key=lambda call: call.module):  # outer ones first
        for position in range(call.start, call.end + 1):
            place[order.nodes[position]] = number[call]
    first = {call.module: number[call] for call in sorted(calls, key=lambda call: -call.start)}
    for leaf, owners in ownership.owners.items():
        called = [one for owner in owners for one in around(modules, owner) if one in first]
        place[leaf] = first[called[0]] if called else None
    nodes = tuple(
        node if node.scope == scope else node._replace(scope=scope) for node, scope in zip(graph.nodes, place)
    )
    return replace(graph, nodes=nodes, scopes=scopes, attribution="inferred")


def _silent_calls(modules: tuple[Registered, ...], extents: Extents) -> list[Call]:
    """Calls of modules without parameters: positions side by side that the same module made in the same call."""
    found: list[Call] = []
    last: tuple[Call, int] | None = None
    for position in sorted(extents.made_by):
        around, module = extents.made_by[position]
        if last == (around, module) and found and found[-1].end == position - 1:
            found[-1].end = position
        else:
            call = Call(module, position, position, [])
            call.parent = around
            found.append(call)
        last = around, module
    return found


def _scopes(modules: tuple[Registered, ...], calls: list[Call]) -> tuple[tuple[Scope, ...], dict[Call, int]]:
    """Calls as scopes, in the order they began, outer ones first."""
    made: list[Scope] = []
    number: dict[Call, int] = {}
    times: dict[int, int] = {}
    for call in sorted(calls, key=lambda call: (call.start, call.module)):
        module = modules[call.module]
        times[call.module] = times.get(call.module, 0) + 1
        number[call] = len(made)
        parent = number[call.parent] if call.parent is not None else None
        made.append(Scope(module.path, module.type, times[call.module], parent, module.parameters))
    return tuple(made), number
