"""One module of a graph as a Graph of its own: its calls, what they used, and what came
out of them.

Ids are numbered anew, so that all that takes a Graph takes a part of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gradviz.errors import PartError, did_you_mean
from gradviz.graph.model import Graph
from gradviz.graph.origins import ScopeTree
from gradviz.graph.records import (
    Base,
    Data,
    Edge,
    Node,
    Root,
    SavedTensor,
    Scope,
    TensorInfo,
)
from gradviz.wording import few, plural

_UNKNOWN = TensorInfo(None, "unknown", "unknown")


def part(graph: Graph, path: str) -> Graph:
    """The calls of the module with this path, with the leaves that they use. Of a
    folded graph, the same of what was folded.

    Its outputs are what the rest of the graph uses of it, and those of the graph that
    it made. What it takes from outside is left out, and counted in `notes`.

    Raises PartError, a KeyError, when no module of the graph has this path; it names
    near ones.

    >>> nodes = (Node(0, "SumBackward0", sequence=2), Node(1, "MulBackward0", sequence=1, scope=0))
    >>> whole = Graph(nodes, (Edge(0, 1, 0, 0),), scopes=(Scope("net", "Net", 1, None),))
    >>> [node.op for node in part(whole, "net").nodes]
    ['MulBackward0']
    """
    if not isinstance(path, str):  # or a loop over a graph would ask for part 0
        raise TypeError(
            f"a part of a graph is named by the path of a module, not by {type(path).__name__}"
        )

    original = graph.original or graph
    calls = [i for i, scope in enumerate(original.scopes) if scope.path == path]
    if not calls:
        inside = sorted(
            {inner for inner in _paths(original) if inner.startswith(f"{path}.")}
        )
        if inside:
            raise PartError(
                f"{path!r} is never called itself, only modules in it. They are: {few(inside, 20)}."
            )
        raise PartError(
            f"no module {path!r} in this graph. {did_you_mean(path, _paths(original), what='modules')}"
        )

    return _Part(original, path, calls).graph()


def _paths(graph: Graph) -> Iterator[str]:
    return (scope.path for scope in graph.scopes if scope.path)


class _Part:
    """The nodes, scopes and storages of a part, each with its new id by the old one."""

    def __init__(
        self,
        original: Graph,
        path: str,
        calls: list[int],
    ) -> None:
        self._original, self._path = original, path
        tree = ScopeTree(original)
        self._scopes = _numbered(
            i
            for i in range(len(original.scopes))
            if not {*tree.around(i)}.isdisjoint(calls)
        )
        self._inside = {node for call in calls for node in tree.members[call]}
        # leaves that it uses come with it; other inputs are counted in the notes
        used = {
            edge.producer for node in self._inside for edge in original.inputs(node)
        }
        self._nodes = _numbered(self._inside | used & original.leaf_of.keys())
        held = {
            storage
            for node in self._nodes
            for slot in original.nodes[node].saved
            for storage in slot.storages
        }
        held |= {
            leaf.storage
            for leaf in original.leaves
            if leaf.node in self._nodes and leaf.storage is not None
        }
        self._storages = _numbered(held)

    def graph(self) -> Graph:
        """All of it."""
        original, nodes = self._original, self._nodes
        marks = []
        for mark in original.marks:
            kept = tuple(nodes[node] for node in mark.nodes if node in nodes)
            if kept:
                # edges are named by consumer and position, which may not be in the part
                marks.append(mark._replace(nodes=kept, edges=()))

        return replace(
            original,
            nodes=tuple(map(self._node, nodes)),
            edges=tuple(self._edges()),
            leaves=tuple(
                leaf._replace(
                    node=nodes[leaf.node],
                    storage=self._storage(leaf.storage),
                    base=self._base(leaf.base),
                )
                for leaf in original.leaves
                if leaf.node in nodes
            ),
            roots=tuple(self._roots()),
            scopes=tuple(map(self._scope, self._scopes)),
            storages=tuple(
                original.storages[old]._replace(id=new)
                for old, new in self._storages.items()
            ),
            title=": ".join(filter(None, (original.title, self._path))),
            notes=(*original.notes, *self._notes()),
            backward=tuple(
                step._replace(node=nodes[step.node])
                for step in original.backward
                if step.node in nodes
            ),
            data=tuple(self._data()),
            marks=tuple(marks),
            absent=tuple(
                leaf
                for leaf in original.absent
                if leaf.names[0].startswith(f"{self._path}.")
            ),
            functions=(),
            by_rank=(),
            original=None,
            opening=None,
        )

    def _node(self, old: int) -> Node:
        node = self._original.nodes[old]
        scope = self._scopes.get(node.scope) if node.scope is not None else None
        return node._replace(
            id=self._nodes[old],
            scope=scope,
            saved=tuple(map(self._saved, node.saved)),
        )

    def _saved(self, slot: SavedTensor) -> SavedTensor:
        parts = tuple(self._storages[storage] for storage in slot.parts)
        leaf = self._nodes.get(slot.leaf) if slot.leaf is not None else None
        return slot._replace(
            storage=self._storage(slot.storage), parts=parts, leaf=leaf
        )

    def _storage(self, old: int | None) -> int | None:
        return self._storages[old] if old is not None else None

    def _base(self, base: Base | None) -> Base | None:
        if base is None or base.node is None:
            return base
        return base._replace(node=self._nodes.get(base.node))

    def _scope(self, old: int) -> Scope:
        scope = self._original.scopes[old]
        return scope._replace(
            parent=self._scopes.get(scope.parent) if scope.parent is not None else None
        )

    def _data(self) -> Iterator[Data]:
        for data in self._original.data:
            users = tuple(
                self._nodes[node] for node in data.nodes if node in self._nodes
            )
            if users:
                yield data._replace(
                    nodes=users,
                    storage=self._storage(data.storage),
                )

    def _edges(self) -> Iterator[Edge]:
        for old, new in self._nodes.items():
            for edge in self._original.inputs(old):
                if edge.producer in self._nodes:
                    yield edge._replace(
                        consumer=new, producer=self._nodes[edge.producer]
                    )

    def _roots(self) -> Iterator[Root]:
        named = {
            (root.node, root.output): root
            for root in self._original.roots
            if root.node in self._inside
        }
        used = {
            (node, edge.output)
            for node in self._inside
            for edge in self._original.consumers(node)
            if edge.consumer not in self._nodes
        }
        for node, output in sorted({*named, *used}):
            assert node is not None
            root = named.get((node, output)) or self._root(node, output)
            yield root._replace(
                node=self._nodes[node],
                base=self._base(root.base),
            )

    def _root(self, node: int, output: int) -> Root:
        record = self._original.nodes[node]
        tensor = record.outputs[output] if output < len(record.outputs) else None
        return Root(
            node,
            output,
            record.assigned or (record.names or (self._path,))[0],
            tensor or _UNKNOWN,
        )

    def _notes(self) -> Iterator[str]:
        outside = {
            (edge.producer, edge.output)
            for node in self._inside
            for edge in self._original.inputs(node)
            if edge.producer not in self._nodes
        }
        if outside:
            yield f"part of a graph: {plural(len(outside), 'tensor')} from outside of {self._path} not shown"


def _numbered(ids: Iterable[int]) -> dict[int, int]:
    return {old: new for new, old in enumerate(sorted(ids))}
