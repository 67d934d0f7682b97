"""What autograd saved for backward: how large it is, who holds it, and what would be
freed with the graph.

Every storage is counted once, at the node that saved it first. Plain numbers and
records, and sentences that say what could not be counted; other wording belongs to
whoever prints them. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

from gradviz.errors import FormatError, UnreadableError, did_you_mean
from gradviz.graph import (
    Graph,
    Leaf,
    Node,
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
    forward_order,
    tensor_bytes,
    why_not_shown,
)
from gradviz.graph.origins import Lines, ScopeTree, op_line, telling_lines
from gradviz.memory.freed import Checkpointed, ModuleCosts
from gradviz.memory.frozen import frozen_notes
from gradviz.report.labels import source_text
from gradviz.report.results import displayed
from gradviz.wording import bytes_text, place_text, plural, tensor_line, verb

By = Literal["node", "op", "module", "line", "op-line", "dtype", "tensor"]
"""What the rows stand for."""

MOST = 0.95
"""A line that holds more than this part of all tells too little: modules are rows then.
"""

_WORD_AND_NUMBER = re.compile(r"(\D*)(\d*)")


class SavedRow(NamedTuple):
    """What one node, op, module, line or dtype saved. Sums over all rows are the
    totals: no storage is in two rows.

    `share` and `cumulated` are parts of all bytes held, from 0 to 1; `cumulated` is
    that of this row and all before it.
    """

    # op, module path, file:line or dtype; empty where nothing was recorded
    name: str = ""
    kinds: Mapping[StorageKind, int] = {}  # bytes by kind of storage
    storages: int = 0
    nodes: int = 0  # nodes that saved these storages first
    share: float = 0.0
    cumulated: float = 0.0
    node: int | None = None  # id, when the rows are nodes
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
    without_storage: int  # tensors that have no storage that can be asked
    empty_storage: int  # tensors with elements in a storage of 0 bytes


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


@displayed("gradviz.memory.table.saved_table")
@dataclass(frozen=True)
class Saved:
    """What a graph saved for backward, in rows from the largest down."""

    by: By
    rows: tuple[SavedRow, ...]
    totals: Totals
    # what could not be counted, and where the numbers are not those of a real run
    notes: tuple[str, ...] = ()

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

    def top(
        self,
        count: int | None,
    ) -> tuple[tuple[SavedRow, ...], SavedRow | None]:
        """The first `count` rows, and the others as one row; None where there are none.
        With None or 0 all rows.

        A single row more than `count` is shown, since "+1 more" would take its place.
        """
        if not count or count >= len(self.rows) - 1:
            return self.rows, None
        return self.rows[:count], joined_rows(self.rows[count:])


def saved(graph: Graph, by: By | None = None) -> Saved:
    """What the nodes of a graph saved for backward: how many bytes, and which node, op,
    module, line or dtype holds them.

    Parameters
    ----------
    graph
        from `walk`, `record` or `load`. A folded graph is read as what it was
        folded from.
    by
        what a row stands for. None picks the source line when lines were recorded
        and none holds over 95 %, else the module when modules were, else the op.
        "line" is the script's own line where more than half would be a library's,
        and a note says so; "tensor" has a row for each storage, with the slot that
        holds it; "op-line" is always the line that called torch.

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
    graph = shown(graph.original or graph)
    chosen = _checked(graph, by)
    first = holders(graph)
    totals = totals_of(graph, first.keys())
    lines = Lines(op_line)

    if chosen == "line":
        nodes = dict.fromkeys(holder.node for holder in first.values())
        lines = telling_lines(graph.nodes[i] for i in nodes)

    rows = _rows(graph, chosen, first, lines)
    notes = [*memory_notes(graph, totals)]
    if lines.note:
        notes.append(f"{lines.note}; op-line instead of line names those")

    if (
        by is None
        and chosen == "line"
        and rows
        and rows[0].share > MOST
        and graph.scopes
    ):
        by_module = _rows(graph, "module", first, lines)
        if by_module[0].share < rows[0].share:
            if rows[0].source is not None:
                where = source_text(rows[0].source)
            else:
                where = "code of no known line"
            note = (
                f"rows are modules, because {where} holds {100 * rows[0].share:.1f} % of it. "
                "For lines: --by line, in Python by='line'"
            )
            notes = [*memory_notes(graph, totals), note]
            chosen, rows = "module", by_module

    return Saved(
        chosen,
        rows,
        totals,
        (*notes, *frozen_notes(graph)),
    )


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
    """The node that saved a storage first, and the slot that it is in."""

    node: int
    slot: SavedTensor


def holders(graph: Graph) -> dict[int, Holder]:
    """Who saved each storage first, by storage id."""
    first: dict[int, Holder] = {}
    for i in forward_order(graph):
        for slot in graph.nodes[i].saved:
            for storage in slot.storages:
                if storage < len(graph.storages):
                    first.setdefault(storage, Holder(i, slot))
    return first


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

    if (by in ("line", "op-line") and not lines) or (by == "module" and not modules):
        missing = "modules" if by == "module" else "source lines"
        raise FormatError(
            f"by cannot be {by!r}: this graph has no {missing}, which only gradviz.record() and the command line see. "
            "Take by='op' or by='node'."
        )

    return by


def _key(
    graph: Graph,
    by: By,
    node: Node,
    slot: SavedTensor,
    lines: Lines,
) -> SavedRow:
    """An empty row with the name that this slot counts under."""
    if by == "op":
        return SavedRow(node.op)
    if by == "node":
        return SavedRow(node.op, node=node.id)

    if by == "tensor":
        return SavedRow(
            f"{slot.slot} {tensor_line(slot.tensor)} of {node.op}", node=node.id
        )

    if by == "dtype":
        return SavedRow(slot.tensor.dtype if slot.tensor is not None else "")

    if by == "module":
        scope = graph.scopes[node.scope] if node.scope is not None else None
        if scope is not None:
            return SavedRow(_module(scope), type=scope.type)
        return SavedRow()

    source = lines.of(node)
    if source is not None:
        return SavedRow(place_text(source.file, source.line), source=source)

    return SavedRow()


def _rows(
    graph: Graph,
    by: By,
    first: Mapping[int, Holder],
    lines: Lines,
) -> tuple[SavedRow, ...]:
    groups: dict[tuple[str, int | None], tuple[SavedRow, list[int]]] = {}
    for storage, (node, slot) in first.items():
        # each storage counts once, for whoever saved it first
        row = _key(graph, by, graph.nodes[node], slot, lines)
        groups.setdefault(
            (row.name, row.node),
            (row, []),
        )[1].append(storage)

    rows = []
    for row, storages in groups.values():
        kinds = by_kind(graph.storages[i] for i in storages)
        nodes = {first[i].node for i in storages}
        rows.append(
            row._replace(
                kinds=_sorted(kinds),
                storages=len(storages),
                nodes=len(nodes),
            )
        )
    if by == "module":
        inclusive, freed = _inclusive(graph, first), _freed(graph)
        rows = [
            row._replace(
                inclusive=inclusive[row.name] if row.name else row.held,
                freed=freed.get(row.name),
            )
            for row in rows
        ]

    rows.sort(
        key=lambda row: (
            -row.held,
            -row.nbytes,
            _natural(row.name),
            row.node or 0,
        )
    )
    sums = list(accumulate(row.held for row in rows))
    # nothing is held: no row has a share of it
    if not sums or not sums[-1]:
        return tuple(rows)

    return tuple(
        row._replace(
            share=row.held / sums[-1],
            cumulated=until / sums[-1],
        )
        for row, until in zip(rows, sums)
    )


def _module(scope: Scope) -> str:
    return scope.path or scope.type


def _inclusive(
    graph: Graph,
    first: Mapping[int, Holder],
) -> Counter[str]:
    """Bytes held by each module, with what the modules called inside it hold."""
    tree, held = ScopeTree(graph), Counter[str]()
    for storage, holder in first.items():
        record = graph.storages[storage]
        # a parameter would be there without the graph, too
        if record.kind in COUNTED:
            for name in {
                _module(graph.scopes[scope])
                for scope in tree.around(graph.nodes[holder.node].scope)
            }:
                held[name] += record.nbytes or 0
    return held


def _freed(graph: Graph) -> dict[str, int]:
    """Bytes that each module frees if it alone runs in a checkpoint."""
    costs = ModuleCosts(graph)
    freed = {
        path: costs.total - Checkpointed(costs, [path]).held for path in costs.scopes
    }
    return {
        _module(graph.scopes[costs.scopes[path][0]]): max(nbytes, 0)
        for path, nbytes in freed.items()
    }


def _sorted(kinds: Counter[StorageKind]) -> dict[StorageKind, int]:
    return dict(sorted(kinds.items()))


def _natural(name: str) -> list[tuple[str, int]]:
    """A key that sorts `blocks.2` before `blocks.10`."""
    return [(word, int(number or 0)) for word, number in _WORD_AND_NUMBER.findall(name)]


def joined_rows(rows: Sequence[SavedRow]) -> SavedRow:
    """Several rows as one without a name. What modules hold inside others has no sum."""
    kinds: Counter[StorageKind] = Counter()
    for row in rows:
        kinds.update(row.kinds)
    return SavedRow(
        "",
        _sorted(kinds),
        sum(row.storages for row in rows),
        sum(row.nodes for row in rows),
        sum(row.share for row in rows),
        rows[-1].cumulated if rows else 0.0,
    )


# -- totals ----------------------------------------------------------------------------


def totals_of(graph: Graph, saved: Collection[int]) -> Totals:
    """The totals, when these storages are saved."""
    slots = [slot for node in graph.nodes for slot in node.saved]
    full = [slot for slot in slots if slot.tensor is not None]
    states = Counter(slot.state for slot in slots)
    kept = by_kind(map(graph.storages.__getitem__, saved))
    sizes = by_kind(graph.storages)
    # not read, with `saved=False`
    sizes.update(_by_shape(leaf for leaf in graph.leaves if leaf.storage is None))

    return Totals(
        parameters=sizes["parameter"],
        buffers=sizes["buffer"],
        inputs=sizes["input"],
        gradients=_by_shape(leaf for leaf in graph.leaves if not leaf.has_grad).total(),
        activations=kept["activation"],
        outputs=kept["output"],
        numbers=kept["number"],
        held_for_backward=sum(kept.values()),
        held_only_by_graph=sum(kept[kind] for kind in ONLY_GRAPH),
        slots=len(full),
        storages=len(saved),
        freed_slots=states["freed"],
        modified_slots=states["modified"],
        modified_bytes=_bytes_in(graph, full, "modified"),
        packed_slots=states["packed"],
        packed_bytes=_bytes_in(graph, full, "packed"),
        packed_unknown=sum(
            slot.state == "packed"
            and slot.tensor is None
            and slot.packing != "recompute"
            for slot in slots
        ),
        recomputed_slots=[slot.packing for slot in slots].count("recompute"),
        without_storage=sum(_nbytes(graph, slot) is None for slot in full),
        empty_storage=sum(
            _nbytes(graph, slot) == 0 and bool(slot.nbytes) for slot in full
        ),
    )


def _bytes_in(
    graph: Graph,
    slots: Iterable[SavedTensor],
    state: SavedState,
) -> int:
    storages = {
        storage for slot in slots if slot.state == state for storage in slot.storages
    }
    return sum(graph.storages[i].nbytes or 0 for i in storages)


def _nbytes(graph: Graph, slot: SavedTensor) -> int | None:
    return graph.storages[slot.storage].nbytes if slot.storage is not None else None


def by_kind(storages: Iterable[Storage]) -> Counter[StorageKind]:
    """Bytes of storages by their kind."""
    kinds: Counter[StorageKind] = Counter()
    for storage in storages:
        kinds[storage.kind] += storage.nbytes or 0
    return kinds


def _by_shape(leaves: Iterable[Leaf]) -> Counter[StorageKind]:
    """The same of leaves whose storages are not known."""
    kinds: Counter[StorageKind] = Counter()
    for leaf in leaves:
        kinds[leaf.kind] += tensor_bytes(leaf.tensor) or 0
    return kinds


# -- notes -----------------------------------------------------------------------------

_HIDING = {"checkpoint": "a reentrant checkpoint", "hidden": "C++"}


def memory_notes(graph: Graph, totals: Totals) -> Iterator[str]:
    """One sentence for each thing that makes the numbers smaller, larger or other than
    they seem.

    What the graph itself has to say comes first, such as that this torch shows no saved
    tensors.
    """
    yield from graph.notes
    slots, tensors, nodes = (
        ("slot", "was", "were"),
        ("saved tensor", "has", "have"),
        ("node", "keeps", "keep"),
    )

    def flagged(flag: str) -> int:
        return sum(flag in node.flags for node in graph.nodes)

    remarks = (
        (
            totals.freed_slots,
            slots,
            "freed: backward() has run, what they held is gone and not counted",
        ),
        (
            totals.modified_slots,
            slots,
            "modified in place since it was saved: backward() will raise an error",
        ),
        (
            totals.packed_unknown,
            slots,
            "packed by a hook into something that is no tensor: its size is not known and not counted",
        ),
        (
            totals.recomputed_slots,
            slots,
            "left to checkpoints: nothing is held for them until backward() computes them again; what is kept for that is "
            "counted",
        ),
        (totals.without_storage, tensors, "no storage that can be asked: not counted"),
        (
            totals.empty_storage,
            tensors,
            "elements but a storage of 0 bytes: sharded away, or held inside a tensor subclass",
        ),
        *(
            (
                flagged(flag),
                nodes,
                f"what {hider} saved or will compute again: not counted",
            )
            for flag, hider in _HIDING.items()
        ),
        (
            _math_attention_on_meta(graph),
            nodes,
            "a (length x length) matrix for attention. On the meta device scaled_dot_product_attention always does so; on a "
            "CPU or GPU it mostly does not. Use FakeTensorMode instead of device='meta' for the real size",
        ),
    )
    for count, (thing, single, several), text in remarks:
        if count:
            yield f"{plural(count, thing)} {verb(count, single, several)} {text}"


def _math_attention_on_meta(graph: Graph) -> int:
    """Nodes that keep the weights of attention, when all is on the meta device: a
    softmax next to batched products.
    """
    on_meta = list(filter(_is_on_meta, graph.nodes))
    if not any(
        node.op.startswith(("Bmm", "Baddbmm", "UnsafeView", "ExpandBackward"))
        for node in on_meta
    ):
        return 0

    return sum(
        "Softmax" in node.op and not node.op.startswith("LogSoftmax")
        for node in on_meta
    )


def _is_on_meta(node: Node) -> bool:
    return any(
        output is not None and output.device == "meta" for output in node.outputs
    )
