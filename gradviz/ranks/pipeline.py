"""Joins the graphs of a pipeline's stages into one: where a stage receives, its graph goes on in that of the stage before.

Plain data; knows nothing of torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from gradviz.graph import (
    Base,
    Edge,
    Graph,
    Leaf,
    Mark,
    Node,
    Root,
    SavedTensor,
    Scope,
    Storage,
)
from gradviz.rank import named
from gradviz.ranks.merging import shares, summary
from gradviz.ranks.rank_diff import RankDiff, Varying
from gradviz.wording import bytes_text, plural

_RECEIVED = re.compile(r"args_recv_info\[\d+\]\[(\d+)\]\.buffer$")
"""The name of a tensor that a stage receives for one microbatch, with its place among them."""


def stitched(stages: Mapping[int, RankDiff]) -> RankDiff:
    """The merged ranks of each stage as one, in the order of the stages. A name or path begins with its stage."""
    joining = _Joining()
    for number, part in sorted(stages.items()):
        joining.add(number, part)
    return joining.result([part for _, part in sorted(stages.items())])


class _Joining:
    """The joined graph while stages are added to it, the first one first."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.leaves: list[Leaf] = []
        self.roots: list[Root] = []
        self.scopes: list[Scope] = []
        self.storages: list[Storage] = []
        self.marks: list[Mark] = []
        self.varying: list[Varying] = []
        self.some_edges: list[tuple[Edge, tuple[int, ...]]] = []
        self._sent: tuple[Root, ...] = ()  # what the stage before gives on
        self._sequence = 0
        self._joined = 0
        self._notes: dict[str, None] = {}

    def add(self, number: int, part: RankDiff) -> None:
        """One stage more."""
        own = summary(part.groups)
        self._notes |= dict.fromkeys(one for one in part.graph.notes if one not in own)
        graph, first, scope, storage = part.graph, len(self.nodes), len(self.scopes), len(self.storages)
        self.scopes.append(Scope(f"stage{number}", named(part.ranks), 1, None))
        self.scopes += [
            one._replace(
                path=f"stage{number}.{one.path}" if one.path else f"stage{number}",
                parent=scope if one.parent is None else one.parent + scope + 1,
            )
            for one in graph.scopes
        ]
        received = {leaf.node: place for leaf in graph.leaves if (place := self._place(leaf)) is not None}
        for node in graph.nodes:
            made = node._replace(
                id=node.id + first,
                scope=scope if node.scope is None else node.scope + scope + 1,
                sequence=None if node.sequence is None else node.sequence + self._sequence,
                saved=tuple(_shifted(one, first, storage) for one in node.saved),
            )
            if node.id in received:
                root = self._sent[received[node.id]]
                made = made._replace(op="Recv", sequence=self._sequence, names=(_sent(root, number),))
                assert root.node is not None
                self.edges.append(Edge(made.id, root.node, root.output, 0))
                self._joined += 1
            self.nodes.append(made)
        self.edges += [
            one._replace(consumer=one.consumer + first, producer=one.producer + first) for one in graph.edges
        ]
        self.leaves += [_leaf(one, number, first, storage) for one in graph.leaves if one.node not in received]
        self.storages += [one._replace(id=one.id + storage) for one in graph.storages]
        self.marks += [
            one._replace(
                nodes=tuple(node + first for node in one.nodes), edges=tuple((node + first, p) for node, p in one.edges)
            )
            for one in graph.marks
        ]
        self.varying += [one._replace(node=one.node + first) for one in part.varying]
        self.some_edges += [
            (one._replace(consumer=one.consumer + first, producer=one.producer + first), ranks)
            for one, ranks in part.some_edges
        ]
        roots = tuple(_root(one, first) for one in graph.roots)
        self.roots = [one for one in self.roots if not received or one not in self._sent]
        self.roots += [one._replace(name=f"stage{number}.{one.name}") for one in roots]
        self._sent = tuple(self.roots[-len(roots) :]) if roots else ()
        self._sequence = 1 + max((one.sequence for one in self.nodes if one.sequence is not None), default=0)

    def _place(self, leaf: Leaf) -> int | None:
        """Which output of the stage before a leaf is, None when it is none."""
        found = next((match for name in leaf.names if (match := _RECEIVED.search(name))), None)
        place = int(found[1]) if found is not None else None
        return place if place is not None and place < len(self._sent) and self._sent[place].node is not None else None

    def result(self, parts: list[RankDiff]) -> RankDiff:
        """All stages, joined."""
        ranks = tuple(sorted(rank for part in parts for rank in part.ranks))
        saved = {rank: part.bytes_by_rank[rank] for part in parts for rank in part.ranks}
        processes = {rank: one for part in parts for rank, one in part.processes.items()}
        first = parts[0].graph
        where = re.sub(r", ranks? [\d, -]+( of \d+)?.*", "", first.title)
        note = f"{plural(len(parts), 'pipeline stage')} joined at {plural(self._joined, 'tensor')} that one sends to the next"
        graph = Graph(
            tuple(self.nodes),
            tuple(sorted(self.edges, key=lambda edge: (edge.consumer, edge.position))),
            tuple(self.leaves),
            tuple(self.roots),
            tuple(self.scopes),
            tuple(self.storages),
            title=f"{where}, {named(ranks)}: {plural(len(parts), 'pipeline stage')}",
            torch=first.torch,
            attribution=first.attribution,
            notes=(note, *self._notes),
            by_rank=shares(saved, processes),
            marks=tuple(mark._replace(number=i) for i, mark in enumerate(self.marks, 1)),
        )
        return RankDiff(
            graph,
            ranks,
            [own for part in parts for own in part.having],
            tuple(sorted(group for part in parts for group in part.groups)),
            tuple(self.varying),
            tuple(self.some_edges),
            saved,
            processes,
            max(part.world for part in parts),
            tuple(part.ranks for part in parts),
        )


def _shifted(saved: SavedTensor, first: int, storage: int) -> SavedTensor:
    return saved._replace(
        storage=None if saved.storage is None else saved.storage + storage,
        parts=tuple(part + storage for part in saved.parts),
        leaf=None if saved.leaf is None else saved.leaf + first,
    )


def _leaf(leaf: Leaf, number: int, first: int, storage: int) -> Leaf:
    return leaf._replace(
        node=leaf.node + first,
        names=tuple(f"stage{number}.{name}" for name in leaf.names),
        storage=None if leaf.storage is None else leaf.storage + storage,
        base=_base(leaf.base, first),
    )


def _root(root: Root, first: int) -> Root:
    return root._replace(node=None if root.node is None else root.node + first, base=_base(root.base, first))


def _base(base: Base | None, first: int) -> Base | None:
    return base._replace(node=base.node + first) if base is not None and base.node is not None else base


_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4}


def _sent(root: Root, number: int) -> str:
    shape, size = root.tensor.shape, _SIZES.get(root.tensor.dtype)
    sizes = [one for one in shape or ("?",) if isinstance(one, int)]
    known = shape is not None and size is not None and len(sizes) == len(shape)
    return f"from stage {number - 1}" + (f", {bytes_text(prod(sizes) * (size or 0))}" if known else "")
