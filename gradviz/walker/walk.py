"""From output tensors to a `Graph`: follows `next_functions` and `AccumulateGrad.variable`, iteratively.

Two steps. `traverse` visits every node once and makes the edges; ids are the order of discovery, so they are
deterministic and the first root is node 0. `Describer` then reads each node's facts while all of them are held.
Nothing of the user's graph outlives the walk, and what the walk touched stays safe to delete (`keepalive`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from gradviz.compiled.splice import Part, splice
from gradviz.errors import NoGraphError
from gradviz.graph import Graph, column
from gradviz.graph.columns import paused
from gradviz.variables.scanner import Namespace, name_of
from gradviz.walker import private, traversal
from gradviz.walker.compiled import compiled_regions, named_modules
from gradviz.walker.description import Attribution, Describer, Walked
from gradviz.walker.names import Names
from gradviz.walker.outputs import LiveRoot, Output, find_root, flatten, no_graph, root_name, starts
from gradviz.walker.private import Node
from gradviz.walker.traversal import traverse
from gradviz.wording import plural, verb


def capture(
    outputs: object,
    *,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    variables: Sequence[Namespace] = (),
    title: str = "",
    saved: bool = True,
    need_graph: bool = True,
    attribution: Attribution | None = None,
    inspect: Callable[[Walked], None] | None = None,
    open_compiled: bool = True,
) -> Graph:
    """The graph behind `outputs`, with names from `model`, else `params`, else `variables` (inner namespace first).

    `attribution` knows the scopes and source lines of the nodes. With `saved=False` saved tensors and attributes are not
    read. Raises NotATensorError when there is no tensor in `outputs`, and with `need_graph` NoGraphError when none of them
    has a graph. `inspect` is shown the live nodes behind the graph before they are let go. `open_compiled` puts the operations
    of compiled functions into the graph, behind all other nodes.
    """
    tensors = flatten(outputs)
    names = Names(model, params, variables)
    with paused(), private.without_subclasses():
        variable = name_of(outputs, variables)
        roots = [find_root(root_name(variable, path, tensor, names), tensor) for path, tensor in tensors]
        if need_graph and all(root.node is None for root in roots):
            raise NoGraphError(no_graph(roots))
        return _describe(
            roots, names, title, saved, attribution, inspect, (model, variables) if open_compiled else None
        )


def _describe(
    roots: Sequence[LiveRoot],
    names: Names,
    title: str,
    saved: bool,
    attribution: Attribution | None,
    inspect: Callable[[Walked], None] | None,
    opening: tuple[torch.nn.Module | None, Sequence[Namespace]] | None,
) -> Graph:
    bases = [root.base for root in roots]
    traversed = traverse(starts(roots, bases))
    if traversal.needed():
        for node in names.results:  # asked for its name only, but it has a wrapper now too
            if node not in traversed.position_of:
                traversal.keep(node, [child for child, _ in node.next_functions if child is not None])
    describer = Describer(traversed, roots, names, saved, attribution)
    graph = describer.graph(bases, title)
    regions = compiled_regions(traversed.nodes) if opening is not None else {}
    parts: Mapping[int, Part] = {}
    if opening is not None:
        closed = sum("compiled" in flags for flags in column(graph.nodes, "flags")) - len(regions)
        if regions:
            graph, parts = splice(graph, regions, named_modules(*opening))
        if closed:
            graph = replace(graph, notes=(*graph.notes, _closed(closed)))
    if inspect is not None:
        nodes = [
            *traversed.nodes,
            *[None] * (len(graph.nodes) - len(traversed.nodes)),
        ]  # a leaf that is an output has none
        for i, part in parts.items():
            nodes[i] = traversed.nodes[part.region]
        inspect(Walked(graph, nodes, traversed.position_of, describer.variables, names, describer.storage_id, parts))
    return graph


def _closed(count: int) -> str:
    which = plural(count, "compiled function")
    stays = verb(count, "it stays", "they stay")
    return f"what the backward of {which} does cannot be read with this torch, {torch.__version__}: {stays} closed"


def live_nodes(outputs: Sequence[Output]) -> list[Node]:
    """The nodes that `capture` numbers for these outputs, in the same order. Whoever keeps them keeps the graph alive."""
    with private.without_subclasses():
        roots = [find_root("", output) for output in outputs]
        return traverse(starts(roots, [root.base for root in roots])).nodes
