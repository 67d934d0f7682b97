"""Says of the compiled functions of a live graph what their backward does. Nothing is
compiled or run for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from gradviz.compiled.region import Region, region_of
from gradviz.graph import Edge, Graph
from gradviz.walker import private
from gradviz.walker.private import Node
from gradviz.walker.slots import nodes_of
from gradviz.wording import few, plural, verb

_regions: WeakKeyDictionary[type, Region] = WeakKeyDictionary()


def with_regions(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """The graph in which compiled functions say what they run, and have no edge to an
    input that they give no gradient.

    `nodes` are the live nodes by id. A note names these inputs, another one counts the
    functions that cannot be read.
    """
    compiled = nodes_of(nodes, lambda kind: kind.__name__ == private.COMPILED)
    if not compiled:
        return graph

    records = list(graph.nodes)
    without: set[Edge] = set()
    for i, node in compiled.items():
        region = _region(type(node))
        if region is not None:
            records[i] = records[i]._replace(
                attributes={
                    **records[i].attributes,
                    **dict(_attributes(type(node), region)),
                }
            )
            without.update(_without_gradient(graph, i, node, region))

    if without:
        edges: Sequence[Edge] = [edge for edge in graph.edges if edge not in without]
    else:
        edges = graph.edges
    unread = sum(_region(type(node)) is None for node in compiled.values())
    notes = [*graph.notes, *_notes(graph, without, unread)]
    return replace(graph, nodes=tuple(records), edges=tuple(edges), notes=tuple(notes))


def _region(kind: type) -> Region | None:
    region = _regions.get(kind)
    if region is None:
        text = private.compiled_program(kind)
        region = region_of(text) if text is not None else None
        if region is not None:
            _regions[kind] = region
    return region


def _attributes(kind: type, region: Region) -> Iterator[tuple[str, Any]]:
    yield "operations", region.calls.total()
    yield "ops", region.kinds
    is_compiled = private.is_backward_compiled(kind)
    if is_compiled is not None:
        yield "backward_compiled", is_compiled


def _without_gradient(
    graph: Graph, i: int, node: Node, region: Region
) -> Iterator[Edge]:
    """The edges of one compiled function for which its backward returns None."""
    edges, needed = graph.inputs(i), node.needs_input_grad
    if len(needed) != len(region.gives) or sum(needed) != len(edges):
        # of a tensor that is made of others, it returns a gradient for each part
        return
    has_gradient = [gives for gives, needs in zip(region.gives, needed) if needs]
    yield from (edge for edge, gives in zip(edges, has_gradient) if not gives)


def _notes(graph: Graph, without: set[Edge], unread: int) -> Iterator[str]:
    if without:
        inputs = [graph.nodes[edge.producer] for edge in sorted(without)]
        names = [" = ".join(node.names) or node.op for node in inputs]
        gets = f"{plural(len(names), 'input')} of a compiled function {verb(names, 'gets', 'get')}"
        yield f"{gets} no gradient from it: {few(names)}"
    if unread:
        which = plural(unread, "compiled function")
        yield f"what the backward of {which} does cannot be read with this torch, {torch.__version__}"
