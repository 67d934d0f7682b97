"""From output tensors to a `Graph`: visits every node that they lead to, and has what
they tell described.

Two steps. `traverse` visits every node once, breadth first, and makes the edges; ids
are the order of discovery, so they are deterministic and the first root is node 0.
`Description` then reads each node's facts while all of them are held. Nothing of the
user's graph outlives the walk, and what the walk touched stays safe to delete
(`_Keeper`).
"""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import torch

from gradviz.errors import NoGraphError
from gradviz.features import hook
from gradviz.graph import Edge, Graph
from gradviz.graph.collector import paused
from gradviz.stages import Stage
from gradviz.variables.objects import reading_once
from gradviz.variables.scanner import Namespace, name_of
from gradviz.walker import private
from gradviz.walker.description import Description, Traversal
from gradviz.walker.isolation import isolated
from gradviz.walker.names import Names
from gradviz.walker.outputs import (
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
    inspect: Callable[[Walked], None] | None = None,
    read_compiled: bool = True,
) -> Graph:
    """The graph behind `outputs`, with names from `model`, else `params`, else
    `variables` (inner namespace first).

    `attribution` knows the scopes and source lines of the nodes. With `saved=False`
    saved tensors and attributes are not read. Raises NotATensorError when there is no
    tensor in `outputs`, and with `need_graph` NoGraphError when none of them has a
    graph. `inspect` is shown the live nodes behind the graph before they are let go.
    With `read_compiled`, compiled functions say what they run, and have no edge to an
    input that they give no gradient.
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
            # some outputs without a graph are fine, such as metrics beside a loss
            if need_graph and all(root.node is None for root in roots):
                raise NoGraphError(no_graph(roots))
            traversed = traverse(starts(roots))
            # asking a variable for its grad_fn has made wrappers outside this graph,
            # too
            _keep_named(names, traversed)
            described = Description(traversed, roots, names, saved, attribution)
            graph = Graph(
                nodes=tuple(described.nodes),
                edges=tuple(traversed.edges),
                leaves=tuple(described.leaves),
                roots=tuple(described.roots),
                data=described.data,
                storages=tuple(described.storages.records),
                title=title
                or ", ".join(root.name for root in roots[:3])
                + (", ..." if len(roots) > 3 else ""),
                scopes=described.places.scopes,
                program=described.places.program,
                torch=str(torch.__version__),
                attribution=attribution.kind if attribution is not None else "",
                notes=(*private.missing(), *described.places.notes),
            )
            if read_compiled:
                with_regions = hook("gradviz.compiled.live:with_regions")
            else:
                with_regions = None
            if with_regions is not None:
                # a compiled function is one node; this says what runs in it
                graph = with_regions(graph, traversed.nodes)

        if inspect is not None:
            # a leaf that is an output has no live node
            nodes: list[Node] = [
                *traversed.nodes,
                *[None] * (len(graph.nodes) - len(traversed.nodes)),
            ]
            inspect(
                Walked(
                    graph,
                    nodes,
                    traversed.position_of,
                    described.variables,
                    names,
                    described.storages.known,
                )
            )

        return graph


def live_nodes(outputs: Sequence[Output]) -> list[Node]:
    """The nodes that `capture` numbers for these outputs, in the same order. Whoever
    keeps them keeps the graph alive.
    """
    with isolated():
        return traverse(starts([find_root("", output) for output in outputs])).nodes


# -- visiting --------------------------------------------------------------------------


def traverse(starts: Sequence[Node]) -> Traversal:
    """Visit everything reachable from `starts`. The caller holds the roots, so no node
    dies on the way.

    Keepers are set at once as each node is visited, so that even an interrupted walk
    leaves a graph safe to delete. Only a graph that is too small to matter gets none.
    """
    nodes = list(dict.fromkeys(starts))
    index = {node: i for i, node in enumerate(nodes)}
    sequences = [node._sequence_nr() for node in nodes]
    edges: list[Edge] = []
    none_inputs: dict[int, int] = {}
    # keepers of the first nodes, set when the graph turns out to be large
    waiting: list[tuple[Node, list[Node]]] = []
    find, add_edge, new = index.get, edges.append, tuple.__new__
    protect, band, last, small = private.wrappers_are_preserved(), BAND, LAST, SMALL

    with Stage("walk", "nodes", nodes.__len__):
        for consumer, node in enumerate(nodes):  # grows while it is read
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
                # see `BAND` below: a child in another band is kept by its consumer
                if protect and not (floor <= number < sequence) and number != last:
                    if kept is None:
                        kept = [child]
                    else:
                        kept.append(child)
            if kept is not None:
                waiting.append((node, kept))
            # only now is it known to be a large graph
            if waiting and consumer >= small:
                _keep_all(waiting)
        if len(nodes) > small:
            _keep_all(waiting)

    return Traversal(nodes, index, sequences, edges, none_inputs)


# Makes a deep graph that was walked safe to delete. From torch 2.12 or 2.13 on, a
# node's Python wrapper lives as long as the node. `~Node` takes its edges apart
# iteratively only for children that nobody else refers to; a child with a wrapper is
# deleted in a nested call, some 200 bytes of stack a level, and a chain of about 40,000
# nodes ends the process with a segmentation fault. Walking a graph makes wrappers, so a
# walk must also make the deletion safe. The scheme: a node whose child lies in another
# band of `BAND` sequence numbers keeps that child in its `metadata`, which `~Node`
# drops after its edges. What is kept there is a `_Keeper`, whose `__del__` only puts
# the children in a queue; the outermost `__del__` of the thread drains it. So the
# nesting is at most `BAND` deep, whatever CPython's own limits are. Only direct
# children are kept, which the node's own edges keep anyway: nothing lives longer than
# it would have. Edges to a later number exist (a view's regenerated `grad_fn`) and are
# kept, too: between two kept edges the numbers fall strictly inside one band.
# AccumulateGrad, whose number is the last, has no children to nest into.

BAND = 64
"""Sequence numbers in a band. At 64, a thread with a 64 kB stack can still delete the
graph.
"""

SMALL = 128
"""A graph of so few nodes is safe to delete without keepers, even in a thread with a 64
kB stack.
"""

KEY = "__gradviz_keeper__"


class _Queue(threading.local):
    def __init__(self) -> None:
        self.waiting: list[list[Node]] = []
        self.draining = False


_queue = _Queue()


class _Keeper:
    """Holds children of a node until the node is gone, then lets them go one after
    another instead of nested.
    """

    __slots__ = ("children",)

    def __init__(self, children: list[Node]) -> None:
        self.children = children

    def __del__(self, _queue: _Queue = _queue) -> None:
        outermost = interrupted = False
        while True:
            try:
                waiting = _queue.waiting
                if self.children:
                    waiting.append(self.children)
                    self.children = []
                if _queue.draining and not outermost:
                    break
                outermost = _queue.draining = True
                while waiting:
                    # may delete nodes, whose keepers then only append to `waiting`
                    waiting.pop()
                _queue.draining = False
                break
            except KeyboardInterrupt:
                # would be swallowed by __del__: finish first, then raise it again
                interrupted = True
            except AttributeError:  # an interrupt came before the keeper was made
                break

        if interrupted:
            with suppress(RuntimeError):  # while the interpreter ends
                _thread.start_new_thread(_interrupt_soon, ())

    def __repr__(self) -> str:
        return "<gradviz: keeps this node's children until it is deleted>"


def _interrupt_soon() -> None:
    """Interrupt the main thread once it has left `__del__`, which would swallow that
    too.
    """
    time.sleep(0.01)
    _thread.interrupt_main()


def _keep_named(names: Names, traversed: Traversal) -> None:
    """Keep the children of nodes that were asked for their name only, but have a
    wrapper now, too.
    """
    if private.wrappers_are_preserved():
        for node in names.results:
            if node not in traversed.position_of:
                _keep(
                    node,
                    [child for child, _ in node.next_functions if child is not None],
                )


def _keep(node: Node, children: Sequence[Node]) -> None:
    """Keep these direct children of `node` until it is deleted. Once per node: a second
    call changes nothing.
    """
    metadata = node.metadata
    if KEY not in metadata:
        metadata[KEY] = _Keeper(list(children))


def _keep_all(waiting: list[tuple[Node, list[Node]]]) -> None:
    """`_keep` for each pair, and empty the list."""
    for node, children in waiting:
        _keep(node, children)
    waiting.clear()
