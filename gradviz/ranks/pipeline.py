"""Joins the graphs of a pipeline: of stages, of microbatches.

A stage receives what another one sends. Plain data; knows nothing of torch.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradviz.graph import Base, Edge, Graph, Leaf, Mark, Node, Root, SavedTensor, Scope, Storage
from gradviz.graph.amounts import tensor_bytes
from gradviz.rank import Ranks, grouped, named, spans
from gradviz.ranks.rank_diff import RankDiff, Varying, shares, summary
from gradviz.ranks.view import saved_bytes
from gradviz.wording import bytes_text, plural

_RECEIVED = re.compile(r"args_recv_info\[(\d+)\]\[(\d+)\]\.buffer$")
"""The name of a tensor that a stage receives: for which microbatch, and its place among them."""
_MICROBATCH = re.compile(r"microbatch(\d+)\.")


def joined(microbatches: Sequence[Graph]) -> Graph:
    """The graphs of one step's microbatches as one, each in a scope of its own: `microbatch0`. Parameters are leaves of all."""
    union = _Union()
    for place, graph in enumerate(microbatches):
        name = f"microbatch{place}"
        moved = union.add(graph, Scope(name, "microbatch", 1, None), shared=True)
        union.roots += [root._replace(name=f"{name}.{root.name}") for root in moved]
    first = microbatches[0]
    made, process = union.graph(first), first.process
    if process is not None:
        process = process._replace(memory=process.memory._replace(saved=saved_bytes(made)))
    notes = dict.fromkeys(note for graph in microbatches for note in graph.notes)
    calls = re.sub(
        r"\bcall (\d+)$", lambda match: f"calls {match[1]}-{int(match[1]) + len(microbatches) - 1}", first.title
    )
    return replace(made, title=calls, process=process, notes=(_alike(microbatches), *notes))


def _alike(microbatches: Sequence[Graph]) -> str:
    """How many of the microbatches have equal graphs."""
    numbers: dict[object, list[int]] = {}
    for number, graph in enumerate(microbatches):
        rows = [(node.op, node.outputs, [(slot.slot, slot.nbytes) for slot in node.saved]) for node in graph.nodes]
        numbers.setdefault((repr(rows), tuple(graph.edges)), []).append(number)
    groups = [tuple(group) for group in numbers.values()]
    counted = "what they hold for backward is added up, though a schedule may hold one after another"
    return f"{plural(len(microbatches), 'microbatch', 'microbatches')} of one step: {grouped(groups)}; {counted}"


def stitched(stages: Mapping[int, RankDiff]) -> RankDiff:
    """The merged ranks of each stage as one, in the order of the stages. A name or path begins with its stage."""
    joining = _Joining()
    for number, part in sorted(stages.items()):
        joining.stage(number, part)
    return joining.result(stages)


class _Union:
    """Graphs side by side as one. Each lies in a scope of its own, and its nodes, scopes and storages are numbered anew."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.leaves: list[Leaf] = []
        self.roots: list[Root] = []
        self.scopes: list[Scope] = []
        self.storages: list[Storage] = []
        self.node_of: list[int] = []  # where the nodes of the graph are that was added last

    def add(
        self, graph: Graph, around: Scope, *, shared: bool = False, prefix: str = "", later: int = 0
    ) -> tuple[Root, ...]:
        """One graph more; returns its roots, which are added to none.

        `shared` parameters of the same name are one leaf in all graphs. `prefix` is put before the names of leaves, and `later`
        added to sequence numbers.
        """
        scope = self._add_scopes(graph, around)
        known = {leaf.names: leaf for leaf in self.leaves if shared and leaf.names and leaf.kind == "parameter"}
        same = {leaf.node: known[leaf.names] for leaf in graph.leaves if leaf.names in known}
        storage_of = self._add_storages(graph, same)
        new = itertools.count(len(self.nodes))
        self.node_of = node_of = [same[i].node if i in same else next(new) for i in range(len(graph.nodes))]
        self.nodes += [
            node._replace(
                id=node_of[node.id],
                scope=scope + 1 + (-1 if node.scope is None else node.scope),
                sequence=None if node.sequence is None else node.sequence + later,
                saved=tuple([self._moved_slot(slot, storage_of) for slot in node.saved]),
            )
            for node in graph.nodes
            if node.id not in same
        ]
        self.edges += map(self.moved, graph.edges)
        self.leaves += [
            leaf._replace(
                node=node_of[leaf.node],
                names=tuple([f"{prefix}{name}" for name in leaf.names]),
                storage=storage_of[leaf.storage],
                base=self._base(leaf.base),
            )
            for leaf in graph.leaves
            if leaf.node not in same
        ]
        return tuple(
            root._replace(node=None if root.node is None else node_of[root.node], base=self._base(root.base))
            for root in graph.roots
        )

    def _add_scopes(self, graph: Graph, around: Scope) -> int:
        """Add `around`, whose number is returned, and those of the graph inside it."""
        scope = len(self.scopes)
        self.scopes.append(around)
        self.scopes += [
            inner._replace(
                path=f"{around.path}.{inner.path}" if inner.path else around.path,
                parent=scope if inner.parent is None else inner.parent + scope + 1,
            )
            for inner in graph.scopes
        ]
        return scope

    def _add_storages(self, graph: Graph, same: Mapping[int, Leaf]) -> dict[int | None, int | None]:
        """Add those that are not of leaves that are there already; returns where each is now."""
        storage_of: dict[int | None, int | None] = {None: None}
        for leaf in graph.leaves:
            if leaf.node in same and same[leaf.node].storage is not None:
                storage_of[leaf.storage] = same[leaf.node].storage
        for storage in graph.storages:
            if storage.id not in storage_of:
                storage_of[storage.id] = len(self.storages)
                self.storages.append(storage._replace(id=len(self.storages)))
        return storage_of

    def _moved_slot(self, slot: SavedTensor, storage_of: Mapping[int | None, int | None]) -> SavedTensor:
        return slot._replace(
            storage=storage_of[slot.storage],
            parts=tuple([storage_of[part] or 0 for part in slot.parts]),
            leaf=None if slot.leaf is None else self.node_of[slot.leaf],
        )

    def moved(self, edge: Edge) -> Edge:
        """An edge of the graph that was added last, with the numbers of here."""
        return edge._replace(consumer=self.node_of[edge.consumer], producer=self.node_of[edge.producer])

    def _base(self, base: Base | None) -> Base | None:
        return base._replace(node=self.node_of[base.node]) if base is not None and base.node is not None else base

    def graph(self, first: Graph) -> Graph:
        """All of them, with what is said of the first one alone."""
        return Graph(
            tuple(self.nodes),
            tuple(sorted(self.edges, key=lambda edge: (edge.consumer, edge.position))),
            tuple(self.leaves),
            tuple(self.roots),
            tuple(self.scopes),
            tuple(self.storages),
            title=first.title,
            torch=first.torch,
            attribution=first.attribution,
        )


class _Joining(_Union):
    """The joined graph while stages are added to it, the first one first."""

    def __init__(self) -> None:
        super().__init__()
        self._marks: list[Mark] = []
        self._varying: list[Varying] = []
        self._some_edges: list[tuple[Edge, Ranks]] = []
        self._sent = defaultdict[int, list[Root]](list)  # by microbatch, what the stage before gives on
        self._sequence = 0
        self._received = 0
        self._notes: dict[str, None] = {}

    def stage(self, number: int, part: RankDiff) -> None:
        """One stage more."""
        graph, stage = part.graph, f"stage{number}"
        own = summary(part.groups)
        self._notes |= dict.fromkeys(note for note in graph.notes if note not in own)
        received = {leaf.node: root for leaf in graph.leaves if (root := self._source(leaf)) is not None}
        scope = Scope(stage, named(part.ranks), 1, None)
        roots = self.add(graph, scope, prefix=f"{stage}.", later=self._sequence)
        node_of = self.node_of
        for leaf, root in received.items():
            assert root.node is not None
            here = node_of[leaf]
            self.nodes[here] = self.nodes[here]._replace(
                op="Recv", sequence=self._sequence, names=(_sent(root, number),)
            )
            self.edges.append(Edge(here, root.node, root.output, 0))
        receiving = {node_of[node] for node in received}
        self.leaves = [leaf for leaf in self.leaves if leaf.node not in receiving]
        self._received += len(received)
        for mark in graph.marks:
            places = tuple((node_of[node], place) for node, place in mark.edges)
            self._marks.append(mark._replace(nodes=tuple(node_of[node] for node in mark.nodes), edges=places))
        self._varying += [varied._replace(node=node_of[varied.node]) for varied in part.varying]
        self._some_edges += [(self.moved(edge), ranks) for edge, ranks in part.some_edges]
        used = set(map(id, received.values()))
        self.roots = [root for root in self.roots if id(root) not in used]
        self._sent.clear()
        for root in roots:
            microbatch = _MICROBATCH.match(root.name)
            self.roots.append(root._replace(name=f"{stage}.{root.name}"))
            self._sent[int(microbatch[1]) if microbatch else 0].append(self.roots[-1])
        self._sequence = 1 + max((node.sequence for node in self.nodes if node.sequence is not None), default=0)

    def _source(self, leaf: Leaf) -> Root | None:
        """The output of the stage before that a leaf is, None when it is none."""
        received = next((match for name in leaf.names if (match := _RECEIVED.search(name))), None)
        sent = self._sent.get(int(received[1]), []) if received is not None else []
        place = int(received[2]) if received is not None else 0
        return sent[place] if place < len(sent) and sent[place].node is not None else None

    def result(self, stages: Mapping[int, RankDiff]) -> RankDiff:
        """All of them, joined."""
        parts = [part for _, part in sorted(stages.items())]
        missing = set(range(max(stages))) - stages.keys()
        saved = {rank: part.bytes_by_rank[rank] for part in parts for rank in part.ranks}
        processes = {rank: process for part in parts for rank, process in part.processes.items()}
        ranks, first = tuple(sorted(saved)), parts[0].graph
        where = re.sub(r", ranks? [\d, -]+( of \d+)?.*", "", first.title)
        note = f"{plural(len(parts), 'pipeline stage')} joined at {plural(self._received, 'tensor')} that one sends to the next"
        few = "of a rank that holds several, the one whose backward comes first is drawn"
        unseen = [f"not drawn: stages {spans(missing)}; {few}"] if missing else []
        graph = replace(
            self.graph(first),
            title=f"{where}, {named(ranks)}: {plural(len(parts), 'pipeline stage')}",
            notes=(note, *unseen, *self._notes),
            by_rank=shares(saved, processes),
            marks=tuple(mark._replace(number=i) for i, mark in enumerate(self._marks, 1)),
        )
        return RankDiff(
            graph,
            ranks,
            [own for part in parts for own in part.having],
            tuple(sorted(group for part in parts for group in part.groups)),
            tuple(self._varying),
            tuple(self._some_edges),
            saved,
            processes,
            max(part.world for part in parts),
            tuple(part.ranks for part in parts),
        )


def _sent(root: Root, number: int) -> str:
    nbytes = tensor_bytes(root.tensor)
    return f"from stage {number - 1}" + (f", {bytes_text(nbytes)}" if nbytes is not None else "")
