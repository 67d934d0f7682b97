"""The part of a graph that one module made, between its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from gradviz.errors import FormatError
from gradviz.fold.program import names_in, with_program
from gradviz.graph import (
    Base,
    Data,
    Edge,
    Graph,
    Leaf,
    Mark,
    Node,
    Root,
    SavedTensor,
    TensorInfo,
    column,
)
from gradviz.graph.origins import around
from gradviz.wording import plural

UNKNOWN = TensorInfo((), "", "")


class Crop:
    """The first call of the module, or of what the program wrote, at `path`, which must
    be there: `call` is its scope, `constructs` are those of the program by scope.

    Raises FormatError for one that ran nothing of the graph.

    >>> from gradviz.graph import Edge, Node, Scope
    >>> nodes = (Node(0, "Sum"), Node(1, "Exp", scope=0), Node(2, "Sin"), Node(3, "Cos"))
    >>> edges = (Edge(0, 1, 0, 0), Edge(1, 2, 0, 0), Edge(2, 3, 0, 0))
    >>> part = Crop(Graph(nodes, edges, scopes=(Scope("net", "Net", 1, None),)), "net").graph()
    >>> [(node.op, node.flags) for node in part.nodes], [root.node for root in part.roots]
    ([('Exp', ()), ('Sin', ('outside',))], [0])
    """

    def __init__(self, graph: Graph, path: str) -> None:
        self.path = path
        self.whole, self.constructs = with_program(graph)
        graph = self.whole
        every = enumerate(names_in(graph, self.constructs))
        self.calls = [i for i, names in every if path in names]
        self.call = self.calls[0]
        calls = set(range(len(graph.scopes)))
        calls = {call for call in calls if self.call in around(graph.scopes, call)}
        scopes = enumerate(column(graph.nodes, "scope"))
        ran = {node for node, scope in scopes if scope in calls}
        # backward functions of the call, and the ids of all nodes that stay
        self.inside = ran.difference(graph.leaf_of)
        if not self.inside:
            raise FormatError(f"{path} ran no op of this graph")

        self.edges = [edge for edge in graph.edges if edge.consumer in self.inside]
        self._taken: dict[int, set[int]] = {}
        for edge in self.edges:
            self._taken.setdefault(edge.producer, set()).add(edge.output)

        kept = sorted(self.inside.union(edge.producer for edge in self.edges))
        self.new = {node: i for i, node in enumerate(kept)}

    def graph(self) -> Graph:
        """The graph of the call. Ops outside whose results it takes are nodes without
        inputs, flagged "outside"; results that leave it are outputs.
        """
        whole, new = self.whole, self.new
        scopes = list(whole.scopes)
        scopes[self.call] = scopes[self.call]._replace(parent=None)
        leaves = (leaf for leaf in whole.leaves if leaf.node in new)
        steps = (step for step in whole.backward if step.node in new)

        return replace(
            whole,
            nodes=tuple(map(self._node, new)),
            edges=tuple(map(self._edge, self.edges)),
            leaves=tuple(map(self._leaf, leaves)),
            roots=tuple(self._roots()),
            scopes=tuple(scopes),
            backward=tuple(step._replace(node=new[step.node]) for step in steps),
            data=tuple(map(self._data, whole.data)),
            marks=tuple(map(self._mark, whole.marks)),
            program=(),
            notes=(self._note(), *whole.notes),
        )

    def _note(self) -> str:
        """What is left out."""
        calls = len(self.calls)
        call = f"call 1 of {calls:,} of " if calls > 1 else ""
        functions = len(self.whole.nodes) - len(self.whole.leaf_of)
        words = plural(functions, "backward function")
        return f"{call}{self.path} alone: {len(self.inside):,} of {words}"

    # -- records -----------------------------------------------------------------------

    def _node(self, node: int) -> Node:
        record = self.whole.nodes[node]._replace(id=self.new[node])
        if node in self.inside or node in self.whole.leaf_of:
            return record._replace(saved=tuple(map(self._slot, record.saved)))
        outside = Node(record.id, self._entry(node), record.outputs, record.sequence)
        return outside._replace(flags=("outside",))

    def _leaf(self, leaf: Leaf) -> Leaf:
        return leaf._replace(node=self.new[leaf.node], base=self._base(leaf.base))

    def _slot(self, slot: SavedTensor) -> SavedTensor:
        leaf = None if slot.leaf is None else self.new.get(slot.leaf)
        return slot._replace(leaf=leaf)

    def _edge(self, edge: Edge) -> Edge:
        consumer, producer = self.new[edge.consumer], self.new[edge.producer]
        return edge._replace(consumer=consumer, producer=producer)

    def _base(self, base: Base | None) -> Base | None:
        if base is None or base.node is None:
            return base
        return base._replace(node=self.new.get(base.node))

    def _data(self, data: Data) -> Data:
        """At the ops that stay; that of others keeps its place, which `Data.of` names."""
        entries = zip_longest(data.nodes, data.position)
        kept = {node: entry for node, entry in entries if node in self.inside}
        position = tuple(kept.values()) if data.position else ()
        taken = self._inside(kept)
        return data._replace(nodes=taken, position=position, function=None)

    def _inside(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """The numbers of those that stay."""
        return tuple(self.new[node] for node in nodes if node in self.inside)

    def _mark(self, mark: Mark) -> Mark:
        edges = tuple(
            (self.new[consumer], position)
            for consumer, position in mark.edges
            if consumer in self.inside
        )
        return mark._replace(edges=edges, nodes=self._inside(mark.nodes))

    def _roots(self) -> list[Root]:
        """The outputs inside, and what others take from inside."""
        whole, new = self.whole, self.new
        roots = [
            root._replace(node=new[root.node], base=self._base(root.base))
            for root in whole.roots
            if root.node in self.inside
        ]
        leaving = {
            (edge.producer, edge.output)
            for edge in whole.edges
            if edge.producer in self.inside and edge.consumer not in self.inside
        }
        for node, output in sorted(leaving, reverse=True):
            tensor = _at(whole.nodes[node].outputs, output) or UNKNOWN
            name = self._variable(node, output) or "output"
            roots.append(Root(new[node], output, name, tensor))
        return roots

    def _variable(self, node: int, output: int) -> str:
        """The variable that holds an output of an op; "" where none does."""
        record = self.whole.nodes[node]
        names = record.assigned.split(", ") if record.assigned else record.names[:1]
        if len(record.outputs) > 1 and len(names) == len(record.outputs):
            return names[output]
        return names[0] if len(names) == 1 else ""

    def _entry(self, node: int) -> str:
        """What to call a node outside: the variables that the call takes of it, the
        module that returned them, or its op.
        """
        outputs = sorted(self._taken[node])
        names = [self._variable(node, output) for output in outputs]
        if all(names):
            return ", ".join(names)

        scopes = self.whole.scopes
        shared = [s for s in around(scopes, self.call) if scopes[s].kind == "module"]
        beside = [
            scope
            for scope in around(scopes, self.whole.nodes[node].scope)
            if scopes[scope].kind == "module" and scope not in shared
        ]
        if not beside:
            return self.whole.nodes[node].op
        outer = next((scopes[s].path for s in shared if s != self.call), "")
        return scopes[beside[-1]].path.removeprefix(f"{outer}.")


def _at(values: tuple[Any, ...], index: int) -> Any:
    return values[index] if index < len(values) else None
