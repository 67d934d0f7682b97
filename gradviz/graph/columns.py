"""The records of a very large graph, kept in columns and made when they are read.

A `Node` with its saved tensor and its edge needs almost a kilobyte, most of it the same
from node to node. Columns need about a tenth: what nodes share is one object, and what
differs is a number in an array. Each class here is a sequence of records, equal to the
tuple of the same records. Reading one makes it anew, so a reader that needs a record
often should hold it.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar, overload

from gradviz.graph.model import (
    NO_ATTRIBUTES,
    Edge,
    Function,
    Node,
    NodeFlag,
    SavedTensor,
    SourceLine,
    Storage,
    StorageKind,
    TensorInfo,
)

UNNUMBERED = 2**64 - 1
"""In the column of sequence numbers: none. Autograd gives it to AccumulateGrad."""

_new = tuple.__new__
_Record = TypeVar("_Record", bound=tuple[Any, ...])


class Columns(Sequence[_Record], Generic[_Record]):
    """A sequence of records that are made when they are read."""

    def _at(self, i: int) -> _Record:
        """Record `i`. Raises IndexError past the end."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> _Record: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_Record, ...]: ...
    def __getitem__(
        self,
        index: int | slice,
    ) -> _Record | tuple[_Record, ...]:
        if isinstance(index, slice):
            return tuple([self._at(i) for i in range(*index.indices(len(self)))])
        if index >= 0:
            return self._at(index)
        if index < -len(self):
            raise IndexError(index)
        return self._at(index + len(self))

    def __iter__(self) -> Iterator[_Record]:
        return map(self._at, range(len(self)))

    def column(self, name: str) -> Sequence[Any]:
        """One field of all records; `gradviz.graph.column` is the door to it."""
        return [getattr(record, name) for record in self]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (tuple, Columns)):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other)
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __add__(
        self,
        other: Sequence[_Record],
    ) -> tuple[_Record, ...]:
        return (*self, *other)

    def __repr__(self) -> str:
        return repr(tuple(self))


class EdgeColumns(Columns[Edge]):
    """Edges as numbers: consumer, producer, output of the producer, position. Each
    counts once.
    """

    def __init__(self) -> None:
        self.consumer, self.producer, self.output, self.position = (
            array("i") for _ in range(4)
        )

    def __len__(self) -> int:
        return len(self.consumer)

    def _at(self, i: int) -> Edge:
        return _new(
            Edge,
            (
                self.consumer[i],
                self.producer[i],
                self.output[i],
                self.position[i],
                1,
            ),
        )

    def column(self, name: str) -> Sequence[Any]:
        # autograd has an entry for each edge; only folding gives edges a larger count
        return [1] * len(self) if name == "count" else getattr(self, name)

    def __iter__(self) -> Iterator[Edge]:
        return map(
            _new,
            repeat(Edge),
            zip(
                self.consumer,
                self.producer,
                self.output,
                self.position,
                repeat(1),
            ),
        )


class StorageColumns(Columns[Storage]):
    """Storages by id: kind, bytes, which are below 0 where they are not known, and
    names, where there are any.
    """

    def __init__(self) -> None:
        self.nbytes, self.kind = array("q"), list[StorageKind]()
        self.names: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self.nbytes)

    def column(self, name: str) -> Sequence[Any]:
        if name == "nbytes":
            return [nbytes if nbytes >= 0 else None for nbytes in self.nbytes]
        return self.kind if name == "kind" else super().column(name)

    def _at(self, i: int) -> Storage:
        nbytes = self.nbytes[i]
        return _new(
            Storage,
            (
                i,
                # an array holds no None
                nbytes if nbytes >= 0 else None,
                self.kind[i],
                self.names.get(i, ()),
            ),
        )


class SavedColumns(Sequence[tuple[SavedTensor, ...]]):
    """The saved tensors of each node, kept one node after the other.

    Most differ from one another only in their storage: what `form` says is shared, and
    `storage` gives the id of the storage, or `WHOLE` where the form itself says it.
    `first[node]` is where the slots of a node begin, with one entry more for the end.
    """

    WHOLE = -1

    def __init__(self) -> None:
        self.first, self.storage = array("q"), array("i")
        self.form: list[SavedTensor] = []

    def add(self, saved: SavedTensor) -> None:
        """One slot that shares nothing with others."""
        self.form.append(saved)
        self.storage.append(self.WHOLE)

    def __len__(self) -> int:
        return len(self.first) - 1

    def __getitem__(self, node: int) -> tuple[SavedTensor, ...]:  # type: ignore[override]
        begin, end = self.first[node], self.first[node + 1]
        if begin == end:
            return ()
        if end == begin + 1:
            return (self._at(begin),)
        return tuple([self._at(i) for i in range(begin, end)])

    def _at(self, i: int) -> SavedTensor:
        form, storage = self.form[i], self.storage[i]
        if storage == self.WHOLE:
            return form
        slot, tensor, _, *rest = form
        return _new(SavedTensor, (slot, tensor, storage, *rest))


class NodeType(NamedTuple):
    """What all nodes of one type share."""

    op: str
    flags: tuple[NodeFlag, ...]
    function: Function | None


class NodeColumns(Columns[Node]):
    """Nodes by id. `flags`, `names` and `none_inputs` hold only those of nodes that
    differ from others of their type.
    """

    def __init__(self) -> None:
        self.type: list[NodeType] = []
        self.outputs: list[tuple[TensorInfo | None, ...]] = []
        self.sequence = array("Q")
        self.scope: list[int | None] = []
        self.source: list[SourceLine | None] = []
        self.script_line: list[SourceLine | None] = []
        self.attributes: list[Mapping[str, Any]] = []
        self.saved = SavedColumns()
        self.flags: dict[int, tuple[NodeFlag, ...]] = {}
        self.names: dict[int, tuple[str, ...]] = {}
        self.none_inputs: dict[int, int] = {}
        self.assigned: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.type)

    def read_nothing(self) -> None:
        """No node has attributes or saved tensors."""
        self.attributes = [NO_ATTRIBUTES] * len(self)
        self.saved.first = array(
            "q",
            bytes(8 * (len(self) + 1)),
        )

    def add(
        self,
        type: NodeType,
        outputs: tuple[TensorInfo | None, ...],
        names: tuple[str, ...],
    ) -> None:
        """One node more, without a number, place, attributes or saved tensors."""
        self.names[len(self)] = names
        self.type.append(type)
        self.outputs.append(outputs)
        self.sequence.append(UNNUMBERED)
        self.scope.append(None)
        self.source.append(None)
        self.script_line.append(None)
        self.attributes.append(NO_ATTRIBUTES)
        self.saved.first.append(len(self.saved.form))

    def column(self, name: str) -> Sequence[Any]:
        if name in ("op", "function"):
            return [getattr(type, name) for type in self.type]
        if name == "names":
            return [self.names.get(i, ()) for i in range(len(self))]

        if name == "sequence":
            return [
                number if number != UNNUMBERED else None for number in self.sequence
            ]

        if name == "flags":
            return [self.flags.get(i, type.flags) for i, type in enumerate(self.type)]
        if name == "none_inputs":
            return [self.none_inputs.get(i, 0) for i in range(len(self))]
        if name == "group":
            return [None] * len(self)
        if name in ("outputs", "scope", "source", "attributes", "saved", "script_line"):
            return getattr(self, name)  # type: ignore[no-any-return]

        return super().column(name)

    def _at(self, i: int) -> Node:
        type, sequence = self.type[i], self.sequence[i]
        fields = (
            i,
            type.op,
            self.outputs[i],
            sequence if sequence != UNNUMBERED else None,
            self.scope[i],
            self.source[i],
            self.attributes[i],
            self.saved[i],
            self.flags.get(i, type.flags),
            self.names.get(i, ()),
            self.none_inputs.get(i, 0),
            type.function,
            None,
            self.script_line[i],
            self.assigned.get(i, ""),
        )
        return _new(Node, fields)


# -- the collector ---------------------------------------------------------------------


@contextmanager
def paused() -> Iterator[None]:
    """No collection inside; afterwards the collector is as it was before.

    Making millions of small records sets the collector off again and again, and it then
    reads every one of them; they hold no cycles, so it finds nothing. That took up to
    half of the time of large graphs.

    >>> with paused():
    ...     gc.isenabled()
    False
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
