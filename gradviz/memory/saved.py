"""What autograd saved for backward: how large it is, who holds it, and what would be
freed with the graph.

Every storage is counted once, at the node that saved it first. Plain numbers and
records, and sentences that say what could not be counted; other wording belongs to
whoever prints them. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

from gradviz.errors import FormatError, UnreadableError, did_you_mean
from gradviz.fold.outline import OutlineRow, modules
from gradviz.graph import (
    Graph,
    Leaf,
    Node,
    NodeFlag,
    SavedState,
    SavedTensor,
    Scope,
    SourceLine,
    Storage,
    StorageKind,
)
from gradviz.graph.amounts import (
    COUNTED,
    ONLY_GRAPH,
    flags,
    owners,
    tensor_bytes,
    why_not_shown,
)
from gradviz.graph.given import graph_of
from gradviz.graph.origins import Lines, ScopeTree, telling_lines
from gradviz.memory.freed import Checkpointed, ModuleCosts
from gradviz.report.results import displayed
from gradviz.wording import bytes_text, place_text, plural, tensor_line, verb

By = Literal["op", "module", "line", "tensor"]
"""What the rows stand for."""

MOST = 0.95
"""A line that holds more than this part of all tells too little: modules are rows then.
"""

_WORD_AND_NUMBER = re.compile(r"(\D*)(\d*)")

Bytes = dict[StorageKind, int]
"""Bytes by kind of storage."""


class SavedRow(NamedTuple):
    """What one op, module or line saved, or one storage. Sums over all rows are the
    totals: no storage is in two rows.

    `share` and `cumulated` are parts of all bytes held, from 0 to 1; `cumulated` is
    that of this row and all before it.
    """

    # op, module path, file:line or slot; empty where nothing was recorded
    name: str = ""
    kinds: Mapping[StorageKind, int] = {}  # bytes by kind of storage
    storages: int = 0
    nodes: int = 0  # nodes that saved these storages first
    share: float = 0.0
    cumulated: float = 0.0
    node: int | None = None  # id, when the rows are storages
    type: str = ""  # class of the module, when the rows are modules
    source: SourceLine | None = None  # when the rows are lines
    # `held` with that of the modules called inside, when the rows are modules
    inclusive: int | None = None
    freed: int | None = None  # of `inclusive`, if this module alone ran in a checkpoint

    @property
    def nbytes(self) -> int:
        """Everything saved first here, parameters and buffers included."""
        return sum(self.kinds.values())

    @property
    def held(self) -> int:
        """What the forward pass added: activations, wrapped numbers, inputs, and
        outputs that the caller keeps.
        """
        return sum(self.kinds.get(kind, 0) for kind in COUNTED)

    @property
    def only_graph(self) -> int:
        """What would be freed if the graph were deleted."""
        return sum(self.kinds.get(kind, 0) for kind in ONLY_GRAPH)


class Totals(NamedTuple):
    """The whole graph in bytes, each storage once, and in numbers of slots.

    The first block is memory that exists with or without the graph, as far as the graph
    knows of it. The second sums up what was saved: `held_for_backward` is all of it,
    `held_only_by_graph` what would be freed with the graph.
    """

    parameters: int
    buffers: int
    inputs: int
    # of the `.grad`s that backward() will make for leaves that have none
    gradients: int

    activations: int
    outputs: int  # activations that the caller holds, too
    numbers: int  # Python numbers that autograd wrapped into tensors
    held_for_backward: int
    held_only_by_graph: int

    slots: int  # that hold a tensor
    storages: int  # that those slots hold
    freed_slots: int
    modified_slots: int
    modified_bytes: int
    packed_slots: int
    packed_bytes: int  # of the packed objects that are tensors
    packed_unknown: int  # packed objects that are no tensor: nobody can tell their size
    # packed by a checkpoint: nothing is held for them until backward computes them
    # again
    recomputed_slots: int
    # tensors that have no storage that can be asked, or elements in one of 0 bytes
    without_storage: int


class Total(int):
    """What all rows hold together, in bytes: a number that prints with its unit. `row`
    has its parts.
    """

    row: SavedRow

    def __repr__(self) -> str:
        return bytes_text(int(self))

    @property
    def nbytes(self) -> int:
        """The number itself."""
        return self.row.nbytes

    @property
    def held(self) -> int:
        """Without parameters and buffers."""
        return self.row.held


@displayed("gradviz.memory.table:saved_table", top=None)
@dataclass(frozen=True)
class Saved:
    """What a graph saved for backward, in rows from the largest down."""

    by: By
    rows: tuple[SavedRow, ...]
    totals: Totals
    # what could not be counted, and where the numbers are not those of a real run
    notes: tuple[str, ...] = ()
    # modules around what they hold, from the outermost in; where nobody chose the rows
    outline: tuple[OutlineRow, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        nbytes = bytes_text(self.totals.held_for_backward)
        return f"<Saved: {nbytes} held for backward, {plural(len(self.rows), 'row')} by {self.by}>"

    @property
    def total(self) -> Total:
        """All rows as one: a number of bytes, parameters and buffers included, which
        prints with its unit.
        """
        row = joined_rows(self.rows)
        total = Total(row.nbytes)
        total.row = row
        return total

    def top(self, count: int | None) -> tuple[tuple[SavedRow, ...], SavedRow | None]:
        """The first `count` rows, and the others as one row; None where there are none.
        With None or 0 all rows.

        A single row more than `count` is shown, since "+1 more" would take its place.
        """
        if not count or count >= len(self.rows) - 1:
            return self.rows, None
        return self.rows[:count], joined_rows(self.rows[count:])


def saved(graph: object, by: By | None = None) -> Saved:
    """What the nodes of a graph saved for backward: how many bytes, and which op, module
    or line holds them.

    Parameters
    ----------
    graph
        from `walk`, `record` or `load`, or the tensors of one. A folded graph is
        read as what it was folded from.
    by
        what a row stands for. None picks the source line when lines were recorded
        and none holds over 95 %, else the module when modules were, else the op.
        "line" is the script's own line where more than half would be a library's,
        and a note says so; "tensor" has a row for each storage, with the slot that
        holds it.

    Returns
    -------
    Saved
        rows from the most bytes down, each storage counted once, and totals.

    Raises
    ------
    FormatError
        `by` is another word, or "module" or a line where the graph has none.
    UnreadableError
        torch did not show what is saved (before 2.10).

    Notes
    -----
    Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors

    Examples
    --------
    >>> from gradviz.graph import Graph, Node, SavedTensor, Storage, TensorInfo
    >>> slot = SavedTensor("result", TensorInfo((2,), "float32", "cpu"), 0, "activation", "live", 8)
    >>> graph = Graph((Node(0, "ExpBackward0", saved=(slot,)),), storages=(Storage(0, 8, "activation"),))
    >>> result = saved(graph)
    >>> result.by, result.rows[0].name, result.rows[0].nbytes, result.totals.held_only_by_graph
    ('op', 'ExpBackward0', 8, 8)
    """
    graph = graph_of(graph)
    graph = shown(graph.whole)
    chosen = _checked(graph, by)
    outline = tuple(modules(graph)) if by is None and graph.scopes else ()
    holders = holders_of(graph)
    totals = totals_of(graph, holders)
    rows, note = _rows(graph, chosen, holders)

    too_large = bool(rows) and rows[0].share > MOST
    if by is None and chosen == "line" and too_large and graph.scopes:
        by_module, _ = _rows(graph, "module", holders)
        if by_module[0].share < rows[0].share:
            note = ""
            chosen, rows = "module", by_module

    notes = [*memory_notes(graph, totals), note]
    return Saved(chosen, rows, totals, tuple(filter(None, notes)), outline)


def shown(graph: Graph) -> Graph:
    """The graph itself. Raises UnreadableError where its saved tensors could not be
    read: its bytes would be zeros.
    """
    note = why_not_shown(graph)
    if note:
        torch = note.partition(",")[0]
        raise UnreadableError(
            f"{torch}: memory held for backward is unknown. torch 2.10 and later show it"
        )
    return graph


# -- who holds what --------------------------------------------------------------------


class Holder(NamedTuple):
    """A storage, the node that saved it first, and the slot that it is in."""

    storage: Storage
    node: Node
    slot: SavedTensor


def holders_of(graph: Graph) -> list[Holder]:
    """Who saved each storage first, in forward order."""
    return [
        Holder(graph.storages[storage], graph.nodes[node], slot)
        for storage, (node, slot) in owners(graph).items()
    ]


def by_kind(
    storages: Iterable[Storage],
    leaves: Iterable[Leaf] = (),
    rows: Iterable[SavedRow] = (),
) -> Bytes:
    """Bytes by kind: of storages, of leaves by their shapes, and of rows."""
    kinds: Counter[StorageKind] = Counter()
    for storage in storages:
        kinds[storage.kind] += storage.nbytes or 0
    for leaf in leaves:
        kinds[leaf.kind] += tensor_bytes(leaf.tensor) or 0
    for row in rows:
        kinds.update(row.kinds)
    return dict(sorted(kinds.items()))


# -- rows ------------------------------------------------------------------------------


def _checked(graph: Graph, by: By | None) -> By:
    lines = any(node.source is not None for node in graph.nodes)
    modules = any(node.scope is not None for node in graph.nodes)
    if by is None:
        return "line" if lines else "module" if modules else "op"

    if by not in get_args(By):
        raise FormatError(
            f"by cannot be {by!r}. {did_you_mean(str(by), get_args(By), what='valid ones')}"
        )

    if (by == "line" and not lines) or (by == "module" and not modules):
        missing = "modules" if by == "module" else "source lines"
        raise FormatError(
            f"by cannot be {by!r}: this graph has no {missing}, which only gradviz.record() and the command line see. "
            "Take by='op' or by='tensor'."
        )

    return by


def _row(graph: Graph, by: By, holder: Holder, lines: Lines) -> SavedRow:
    """An empty row with the name that this storage counts under."""
    _, node, slot = holder
    if by == "op":
        return SavedRow(node.op)
    if by == "tensor":
        name = f"{slot.slot} {tensor_line(slot.tensor)} of {node.op}"
        return SavedRow(name, node=node.id)

    if by == "module":
        if node.scope is None:
            return SavedRow()
        scope = graph.scopes[node.scope]
        return SavedRow(_module(scope), type=scope.type)

    source = lines.of(node)
    if source is None:
        return SavedRow()
    return SavedRow(place_text(source.file, source.line), source=source)


def _rows(
    graph: Graph, by: By, holders: Sequence[Holder]
) -> tuple[tuple[SavedRow, ...], str]:
    """Rows from the largest down, and what is to be said of them."""
    lines = telling_lines({h.node.id: h.node for h in holders}.values())

    groups: dict[tuple[str, int | None], tuple[SavedRow, list[Holder]]] = {}
    for holder in holders:
        row = _row(graph, by, holder, lines)
        groups.setdefault((row.name, row.node), (row, []))[1].append(holder)

    rows = []
    for row, members in groups.values():
        row = row._replace(
            kinds=by_kind(holder.storage for holder in members),
            storages=len(members),
            nodes=len({holder.node.id for holder in members}),
        )
        rows.append(row)
    if by == "module":
        rows = _with_modules(graph, rows, holders)

    rows.sort(
        key=lambda row: (-row.held, -row.nbytes, _natural(row.name), row.node or 0)
    )
    return with_shares(rows), lines.note if by == "line" else ""


def with_shares(rows: Sequence[SavedRow]) -> tuple[SavedRow, ...]:
    """Rows with their parts of all that they hold."""
    sums = list(accumulate(row.held for row in rows))
    whole = sums[-1] if sums and sums[-1] else 0
    if not whole:
        return tuple(rows)
    return tuple(
        row._replace(share=row.held / whole, cumulated=until / whole)
        for row, until in zip(rows, sums)
    )


def _module(scope: Scope) -> str:
    return scope.path or scope.type


def _with_modules(
    graph: Graph, rows: Iterable[SavedRow], holders: Iterable[Holder]
) -> list[SavedRow]:
    """Rows of modules with what the modules called inside hold, and what each frees if
    it alone runs in a checkpoint.
    """
    tree, inclusive = ScopeTree(graph), Counter[str]()
    for storage, node, _ in holders:
        # a parameter would be there without the graph, too
        if storage.kind in COUNTED:
            calls = [graph.scopes[scope] for scope in tree.around(node.scope)]
            for name in {_module(call) for call in calls}:
                inclusive[name] += storage.nbytes or 0

    costs = ModuleCosts(graph)
    freed: dict[str, int] = {}
    for path, scopes in costs.scopes.items():
        nbytes = costs.total - Checkpointed(costs, [path]).held
        freed[_module(graph.scopes[scopes[0]])] = max(nbytes, 0)

    return [
        row._replace(
            inclusive=inclusive[row.name] if row.name else row.held,
            freed=freed.get(row.name),
        )
        for row in rows
    ]


def _natural(name: str) -> list[tuple[str, int]]:
    """A key that sorts `blocks.2` before `blocks.10`."""
    return [(word, int(number or 0)) for word, number in _WORD_AND_NUMBER.findall(name)]


def joined_rows(rows: Sequence[SavedRow]) -> SavedRow:
    """Several rows as one without a name. What modules hold inside others has no sum."""
    return SavedRow(
        "",
        by_kind((), rows=rows),
        sum(row.storages for row in rows),
        sum(row.nodes for row in rows),
        sum(row.share for row in rows),
        rows[-1].cumulated if rows else 0.0,
    )


# -- totals ----------------------------------------------------------------------------


def totals_of(graph: Graph, holders: Sequence[Holder]) -> Totals:
    """The totals, where these hold what is saved."""
    slots = [slot for node in graph.nodes for slot in node.saved]
    full = [slot for slot in slots if slot.tensor is not None]
    states = Counter(slot.state for slot in slots)
    packing = Counter(
        slot.packing for slot in slots if slot.state == "packed" and slot.tensor is None
    )
    kept = by_kind(holder.storage for holder in holders)
    # not read, with `saved=False`
    unread = [leaf for leaf in graph.leaves if leaf.storage is None]
    sizes = by_kind(graph.storages, unread)
    missing = by_kind((), [leaf for leaf in graph.leaves if not leaf.has_grad])
    lost = [slot for slot in full if not _nbytes(graph, slot) and slot.nbytes != 0]

    def bytes_in(state: SavedState) -> int:
        storages = {i for slot in full if slot.state == state for i in slot.storages}
        return sum(graph.storages[i].nbytes or 0 for i in storages)

    return Totals(
        parameters=sizes.get("parameter", 0),
        buffers=sizes.get("buffer", 0),
        inputs=sizes.get("input", 0),
        gradients=sum(missing.values()),
        activations=kept.get("activation", 0),
        outputs=kept.get("output", 0),
        numbers=kept.get("number", 0),
        held_for_backward=sum(kept.values()),
        held_only_by_graph=sum(kept.get(kind, 0) for kind in ONLY_GRAPH),
        slots=len(full),
        storages=len(holders),
        freed_slots=states["freed"],
        modified_slots=states["modified"],
        modified_bytes=bytes_in("modified"),
        packed_slots=states["packed"],
        packed_bytes=bytes_in("packed"),
        packed_unknown=packing.total() - packing["recompute"],
        recomputed_slots=[slot.packing for slot in slots].count("recompute"),
        without_storage=len(lost),
    )


def _nbytes(graph: Graph, slot: SavedTensor) -> int | None:
    return graph.storages[slot.storage].nbytes if slot.storage is not None else None


# -- notes -----------------------------------------------------------------------------

_SLOTS = "slot", "was", "were"
_TENSORS = "saved tensor", "has", "have"
_NODES = "node", "keeps", "keep"
_REMARKS = {
    "freed_slots": (
        _SLOTS,
        "freed: backward() has run, what they held is gone and not counted",
    ),
    "modified_slots": (
        _SLOTS,
        "modified in place since it was saved: backward() will raise an error",
    ),
    "packed_unknown": (
        _SLOTS,
        "packed by a hook into something that is no tensor: its size is not known and not counted",
    ),
    "recomputed_slots": (
        _SLOTS,
        "left to checkpoints: nothing is held for them until backward() computes them again; what is kept for that is "
        "counted",
    ),
    "without_storage": (
        _TENSORS,
        "no storage of their own that can be asked, such as those sharded away: not counted",
    ),
}
"""What is said of each of these counts of the totals."""
_HIDING: dict[NodeFlag, str] = {"checkpoint": "a reentrant checkpoint", "hidden": "C++"}


def memory_notes(graph: Graph, totals: Totals) -> Iterator[str]:
    """One sentence for each thing that makes the numbers smaller, larger or other than
    they seem.

    What the graph itself has to say comes first, such as that this torch shows no saved
    tensors.
    """
    yield from graph.notes
    remarks = [(getattr(totals, name), *words) for name, words in _REMARKS.items()]
    flagged = flags(graph)
    for flag, hider in _HIDING.items():
        text = f"what {hider} saved or will compute again: not counted"
        remarks.append((flagged.get(flag, 0), _NODES, text))
    for count, (thing, single, several), text in remarks:
        if count:
            yield f"{plural(count, thing)} {verb(count, single, several)} {text}"
