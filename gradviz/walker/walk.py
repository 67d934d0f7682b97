"""From output tensors to a `Graph`: from the `grad_fn` of each along `next_functions` to
the leaves, whose AccumulateGrad has the tensor as its `variable`.

`traverse` visits every node once, breadth first, and makes the edges; ids are the order
of discovery, so they are deterministic and the first root is node 0. `Description` then
reads each node's facts while all of them are held. Nothing of the user's graph outlives
the walk, and what the walk touched stays safe to delete (`armour/keepers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import torch

from gradviz.armour.isolation import isolated
from gradviz.armour.keepers import BAND, SMALL, keep, keep_all
from gradviz.errors import NoGraphError
from gradviz.features import hook
from gradviz.graph import Edge, Graph
from gradviz.graph.collector import paused
from gradviz.stages import Stage
from gradviz.variables.objects import reading_once
from gradviz.variables.scanner import Namespace, name_of
from gradviz.walker import private
from gradviz.walker.description import Description, Traversal
from gradviz.walker.names import Names
from gradviz.walker.outputs import (
    LiveRoot,
    Output,
    find_root,
    flatten,
    no_graph,
    root_name,
    starts,
)
from gradviz.walker.places import Attribution
from gradviz.walker.private import LAST, Node


class Walked(NamedTuple):
    """What a walk went through, while it is alive. Keep nothing of it.

    `nodes` are the live nodes by id, `position_of` their ids, `variables` the tensors
    behind AccumulateGrad nodes by id. `storage_id` gives the id of the graph's storage
    that a tensor is in, None when no saved tensor and no leaf is in it.
    """

    graph: Graph
    nodes: Sequence[Node]
    position_of: Mapping[Node, int]
    variables: Mapping[int, torch.Tensor]
    names: Names
    storage_id: Callable[[torch.Tensor], int | None]


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
    read_compiled: bool = True,
    beside: Sequence[torch.Tensor] = (),
) -> Walked:
    """The graph behind `outputs`, with names from `model`, else `params`, else
    `variables` (inner namespace first), and the live nodes behind it.

    `attribution` knows the scopes and source lines of the nodes. With `saved=False`
    saved tensors and attributes are not read. Raises NotATensorError when there is no
    tensor in `outputs`, and with `need_graph` NoGraphError when none of them has a
    graph. With `read_compiled`, compiled functions say what they run, and have no edge
    to an input that they give no gradient. What lies behind tensors `beside` the
    outputs is numbered after all else, and they are the last roots.
    """
    with paused(), isolated():
        tensors = flatten(outputs)
        with reading_once():
            names = Names(model, params, variables)
            variable = name_of(outputs, variables)
            roots = [
                find_root(root_name(variable, path, tensor, names), tensor)
                for path, tensor in tensors
            ]
            others = [find_root("", tensor) for tensor in beside]
            # some outputs without a graph are fine, such as metrics beside a loss
            if need_graph and all(root.node is None for root in roots):
                raise NoGraphError(no_graph(roots))

            traversal = traverse(starts(others), traverse(starts(roots)))
            _keep_named(names, traversal)
            described = Description(
                traversal, [*roots, *others], names, saved, attribution
            )
            graph = _graph(described, traversal, title or _title(roots), attribution)
            # a compiled function is one node; this says what runs in it
            with_regions = hook("gradviz.compiled.live:with_regions")
            if read_compiled and with_regions is not None:
                graph = with_regions(graph, traversal.nodes)

        # a leaf that is an output has no live node
        missing = len(graph.nodes) - len(traversal.nodes)
        return Walked(
            graph,
            [*traversal.nodes, *[None] * missing],
            traversal.position_of,
            described.variables,
            names,
            described.storages.known,
        )


def _title(roots: Sequence[LiveRoot]) -> str:
    more = ", ..." if len(roots) > 3 else ""
    return ", ".join(root.name for root in roots[:3]) + more


def _graph(
    described: Description,
    traversal: Traversal,
    title: str,
    attribution: Attribution | None,
) -> Graph:
    places = described.places
    return Graph(
        nodes=tuple(described.nodes),
        edges=tuple(traversal.edges),
        leaves=tuple(described.leaves),
        roots=tuple(described.roots),
        data=described.data,
        storages=tuple(described.storages.records),
        title=title,
        scopes=places.scopes,
        program=places.program,
        torch=str(torch.__version__),
        attribution=attribution.kind if attribution is not None else "",
        notes=(*private.missing(), *places.notes),
    )


def live_nodes(outputs: Sequence[Output]) -> list[Node]:
    """The nodes that `capture` numbers for these outputs, in the same order. Whoever
    keeps them keeps the graph alive.
    """
    with isolated():
        return traverse(starts([find_root("", output) for output in outputs])).nodes


# -- visiting --------------------------------------------------------------------------


def traverse(starts: Sequence[Node], before: Traversal | None = None) -> Traversal:
    """Visit everything reachable from `starts`, after what was visited `before`. The
    caller holds the roots, so no node dies on the way.

    Keepers are set at once as each node is visited, so that even an interrupted walk
    leaves a graph safe to delete. Only a graph that is too small to matter gets none.
    """
    so_far = before or Traversal([], {}, [], [], {}, {})
    nodes, index, sequences, edges, none_inputs, _ = so_far
    first = len(nodes)
    _begin_at(starts, so_far)
    # keepers of the first nodes, set when the graph turns out to be large
    waiting: list[tuple[Node, list[Node]]] = []
    find, add_edge, new = index.get, edges.append, tuple.__new__
    protect, band, last, small = private.wrappers_are_preserved(), BAND, LAST, SMALL

    with Stage("walk", "nodes", nodes.__len__):
        visited = islice(nodes, first, None)  # grows while it is read
        for consumer, node in enumerate(visited, first):
            sequence = sequences[consumer]
            floor = sequence - sequence % band
            kept: list[Node] | None = None
            position = -1
            for child, output in node.next_functions:
                position += 1
                if child is None:
                    none_inputs[consumer] = none_inputs.get(consumer, 0) + 1
                    continue
                producer = find(child)
                # written out, without a function: this runs for every edge of a graph
                # of millions
                if producer is None:
                    producer = index[child] = len(nodes)
                    nodes.append(child)
                    number = child._sequence_nr()
                    sequences.append(number)
                else:
                    number = sequences[producer]
                add_edge(new(Edge, (consumer, producer, output, position, 1)))
                # a child in another band is kept by its consumer
                if protect and not (floor <= number < sequence) and number != last:
                    if kept is None:
                        kept = [child]
                    else:
                        kept.append(child)
            if kept is not None:
                waiting.append((node, kept))
            # only now is it known to be a large graph
            if waiting and consumer >= small:
                keep_all(waiting)
        if len(nodes) > small:
            keep_all(waiting)

    variables = _variables(nodes, sequences)
    return Traversal(nodes, index, sequences, edges, none_inputs, variables)


def _begin_at(starts: Sequence[Node], so_far: Traversal) -> None:
    """Number the nodes to begin at that nobody has visited."""
    for node in starts:
        if node not in so_far.position_of:
            so_far.position_of[node] = len(so_far.nodes)
            so_far.nodes.append(node)
            so_far.sequences.append(node._sequence_nr())


def _variables(
    nodes: Sequence[Node], sequences: Sequence[int]
) -> dict[int, torch.Tensor]:
    """The tensor behind each AccumulateGrad, which has the last of all numbers."""
    variables: dict[int, torch.Tensor] = {}
    for i, sequence in enumerate(sequences):
        if sequence == LAST:
            # other kinds of leaf, such as a received gradient, have the number too
            variable = getattr(nodes[i], "variable", None)
            if variable is not None:
                variables[i] = variable
    return variables


def _keep_named(names: Names, traversal: Traversal) -> None:
    """Keep the children of nodes that were asked for their name only: they have a
    wrapper now, too.
    """
    if private.wrappers_are_preserved():
        for node in names.results:
            if node not in traversal.position_of:
                children = [child for child, _ in node.next_functions]
                keep(node, [child for child in children if child is not None])
