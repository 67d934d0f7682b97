"""What autograd saved for backward: how large it is, who holds it, and what would be freed with the graph.

Every storage is counted once, at the node that saved it first. Plain numbers and records only; wording belongs to whoever
prints them. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from gradviz.errors import FormatError, did_you_mean
from gradviz.graph import (
    Graph,
    Node,
    SavedTensor,
    SourceLine,
    StorageKind,
)
from gradviz.graph.amounts import COUNTED, ONLY_GRAPH, forward_order
from gradviz.graph.origins import Lines, op_line, telling_lines
from gradviz.memory.totals import Totals, by_kind, memory_notes, totals_of
from gradviz.report.results import displayed
from gradviz.wording import bytes_text, plural, tensor_line

By = Literal["node", "op", "module", "line", "op-line", "dtype", "tensor"]
"""What the rows stand for."""

_WORD_AND_NUMBER = re.compile(r"(\D*)(\d*)")


class Row(NamedTuple):
    """What one node, op, module, line or dtype saved. Sums over all rows are the totals: no storage is in two rows.

    `share` and `cumulated` are parts of all bytes held, from 0 to 1; `cumulated` is that of this row and all before it.
    """

    name: str  # op, module path, file:line or dtype; empty where nothing was recorded
    kinds: Mapping[StorageKind, int]  # bytes by kind of storage
    storages: int
    nodes: int  # nodes that saved these storages first
    share: float = 0.0
    cumulated: float = 0.0
    node: int | None = None  # id, when the rows are nodes
    type: str = ""  # class of the module, when the rows are modules
    source: SourceLine | None = None  # when the rows are lines

    @property
    def nbytes(self) -> int:
        """Everything saved first here, parameters and buffers included."""
        return sum(self.kinds.values())

    @property
    def held(self) -> int:
        """What the forward pass added: activations, wrapped numbers, inputs, and outputs that the caller keeps."""
        return sum(self.kinds.get(kind, 0) for kind in COUNTED)

    @property
    def only_graph(self) -> int:
        """What would be freed if the graph were deleted."""
        return sum(self.kinds.get(kind, 0) for kind in ONLY_GRAPH)


@displayed("gradviz.memory.table.saved_table")
@dataclass(frozen=True)
class Saved:
    """What a graph saved for backward, in rows from the largest down."""

    by: By
    rows: tuple[Row, ...]
    totals: Totals
    notes: tuple[str, ...] = ()  # what could not be counted, and where the numbers are not those of a real run

    def __repr__(self) -> str:
        nbytes = bytes_text(self.totals.held_for_backward)
        return f"<Saved: {nbytes} held for backward, {plural(len(self.rows), 'row')} by {self.by}>"

    @property
    def total(self) -> Row:
        """All rows as one."""
        return _joined(self.rows)

    def top(self, count: int | None) -> tuple[tuple[Row, ...], Row | None]:
        """The first `count` rows, and the others as one row; None where there are none. With None or 0 all rows.

        A single row more than `count` is shown, since "+1 more" would take its place.
        """
        if not count or count >= len(self.rows) - 1:
            return self.rows, None
        return self.rows[:count], _joined(self.rows[count:])


def saved(graph: Graph, by: By | None = None) -> Saved:
    """What the nodes of a graph saved for backward: how many bytes, and which node, op, module, line or dtype holds them.

    Args:
        graph: from `walk`, `record` or `load`. A folded graph is read as what it was folded from.
        by: what a row stands for. None picks the source line when lines were recorded, else the module when modules
            were, else the op. "line" is the script's own line where more than half would be a library's, and a note
            says so; "tensor" has a row for each storage, with the slot that holds it and, in compiled functions, what made it;
            "op-line" is always the line that called torch.

    Raises FormatError for another `by`, and for "module" or a line when the graph has none.

    >>> from gradviz.graph import Graph, Node, SavedTensor, Storage, TensorInfo
    >>> slot = SavedTensor("result", TensorInfo((2,), "float32", "cpu"), 0, "activation", "live", 8)
    >>> graph = Graph((Node(0, "ExpBackward0", saved=(slot,)),), storages=(Storage(0, 8, "activation"),))
    >>> result = saved(graph)
    >>> result.by, result.rows[0].name, result.rows[0].nbytes, result.totals.held_only_by_graph
    ('op', 'ExpBackward0', 8, 8)

    Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors
    """
    graph = graph.original or graph
    chosen = _checked(graph, by)
    first = holders(graph)
    totals = totals_of(graph, first.keys())
    lines = Lines(op_line)
    if chosen == "line":
        lines = telling_lines(graph.nodes[i] for i in dict.fromkeys(holder.node for holder in first.values()))
    notes = [
        *memory_notes(graph, totals),
        *([f"{lines.note}; op-line instead of line names those"] if lines.note else []),
    ]
    return Saved(chosen, _rows(graph, chosen, first, lines), totals, tuple(notes))


# -- who holds what --------------------------------------------------------------------------------------------------


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


# -- rows ------------------------------------------------------------------------------------------------------------


def _checked(graph: Graph, by: By | None) -> By:
    lines = any(node.source is not None for node in graph.nodes)
    modules = any(node.scope is not None for node in graph.nodes)
    if by is None:
        return "line" if lines else "module" if modules else "op"
    if by not in get_args(By):
        raise FormatError(f"by cannot be {by!r}. {did_you_mean(str(by), get_args(By), what='valid ones')}")
    if (by in ("line", "op-line") and not lines) or (by == "module" and not modules):
        what = "modules" if by == "module" else "source lines"
        raise FormatError(
            f"by cannot be {by!r}: this graph has no {what}, which only gradviz.record() and the command line see. "
            "Take by='op' or by='node'."
        )
    return by


def _key(graph: Graph, by: By, node: Node, slot: SavedTensor, lines: Lines) -> Row:
    """An empty row with the name that this slot counts under."""
    row = Row("", {}, 0, 0)
    if by == "op":
        return row._replace(name=node.op)
    if by == "node":
        return row._replace(name=node.op, node=node.id)
    if by == "tensor":
        made = f": {slot.note}" if slot.note.startswith("made in") else f" of {node.op}"
        return row._replace(name=f"{slot.slot} {tensor_line(slot.tensor)}{made}", node=node.id)
    if by == "dtype":
        return row._replace(name=slot.tensor.dtype if slot.tensor is not None else "")
    if by == "module":
        if node.scope is None:
            return row
        scope = graph.scopes[node.scope]
        return row._replace(name=scope.path or scope.type, type=scope.type)
    source = lines.of(node)
    if source is None:
        return row
    return row._replace(name=f"{source.file}:{source.line}", source=source)


def _rows(graph: Graph, by: By, first: Mapping[int, Holder], lines: Lines) -> tuple[Row, ...]:
    empty: dict[tuple[str, int | None], Row] = {}
    storages: dict[tuple[str, int | None], list[int]] = {}
    for storage, (node, slot) in first.items():
        row = _key(graph, by, graph.nodes[node], slot, lines)
        key = row.name, row.node
        empty.setdefault(key, row)
        storages.setdefault(key, []).append(storage)
    rows = [
        row._replace(
            kinds=_sorted(by_kind(graph.storages[i] for i in storages[key])),
            storages=len(storages[key]),
            nodes=len({first[i].node for i in storages[key]}),
        )
        for key, row in empty.items()
    ]
    rows.sort(key=lambda row: (-row.held, -row.nbytes, _natural(row.name), row.node or 0))
    return tuple(_with_shares(rows))


def _sorted(kinds: Counter[StorageKind]) -> dict[StorageKind, int]:
    return dict(sorted(kinds.items()))


def _natural(name: str) -> list[tuple[str, int]]:
    """A key that sorts `blocks.2` before `blocks.10`."""
    return [(word, int(number or 0)) for word, number in _WORD_AND_NUMBER.findall(name)]


def _with_shares(rows: list[Row]) -> Iterator[Row]:
    total = sum(row.held for row in rows)
    before = 0
    for row in rows:
        before += row.held
        yield row._replace(share=row.held / total, cumulated=before / total) if total else row


def _joined(rows: tuple[Row, ...]) -> Row:
    kinds: Counter[StorageKind] = Counter()
    for row in rows:
        kinds.update(row.kinds)
    return Row(
        "",
        _sorted(kinds),
        sum(row.storages for row in rows),
        sum(row.nodes for row in rows),
        sum(row.share for row in rows),
        rows[-1].cumulated if rows else 0.0,
    )
