"""The records of a very large graph, kept in columns and made when they are read.

A `Node` with its saved tensor and its edge needs almost a kilobyte, most of it the same from node to node. Columns need about a
tenth: what nodes share is one object, and what differs is a number in an array. Each class here is a sequence of records,
equal to the tuple of the same records. Reading one makes it anew, so a reader that needs a record often should hold it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Generic, NamedTuple, TypeVar, overload

from gradviz.graph import (
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

    __slots__ = ()

    def _between(self, start: int, stop: int) -> Iterator[_Record]:
        """The records from `start` to before `stop`."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[_Record]:
        return self._between(0, len(self))

    @overload
    def __getitem__(self, at: int) -> _Record: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[_Record, ...]: ...
    def __getitem__(self, at: int | slice) -> _Record | tuple[_Record, ...]:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return tuple(self._between(start, stop))
            return tuple([self[i] for i in range(start, stop, step)])
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError(at)
        return next(self._between(at, at + 1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (tuple, Columns)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __add__(self, other: Sequence[_Record]) -> tuple[_Record, ...]:
        return (*self, *other)

    def __repr__(self) -> str:
        return repr(tuple(self))


class EdgeColumns(Columns[Edge]):
    """Edges as numbers: consumer, producer, output of the producer, position. Each counts once."""

    __slots__ = ("consumer", "output", "position", "producer")

    def __init__(self) -> None:
        self.consumer, self.producer = array("i"), array("i")
        self.output, self.position = array("i"), array("i")

    def __len__(self) -> int:
        return len(self.consumer)

    def _between(self, start: int, stop: int) -> Iterator[Edge]:
        columns = (self.consumer, self.producer, self.output, self.position)
        if stop - start < len(self):
            columns = tuple([column[start:stop] for column in columns])  # type: ignore[assignment]
        return map(_new, repeat(Edge), zip(*columns, repeat(1)))


class StorageColumns(Columns[Storage]):
    """Storages by id: kind, and bytes, which are below 0 where they are not known."""

    __slots__ = ("kind", "nbytes")

    def __init__(self) -> None:
        self.nbytes, self.kind = array("q"), list[StorageKind]()

    def __len__(self) -> int:
        return len(self.nbytes)

    def _between(self, start: int, stop: int) -> Iterator[Storage]:
        for i in range(start, stop):
            nbytes = self.nbytes[i]
            yield Storage(i, nbytes if nbytes >= 0 else None, self.kind[i])


class SavedColumns:
    """The saved tensors of all nodes, one node after the other.

    Most differ from one another only in their storage: what `form` says is shared, and `storage` gives the id of the storage, or
    `WHOLE` where the form itself says it. `first[node]` is where the slots of a node begin, with one entry more for the end.
    """

    __slots__ = ("first", "form", "storage")
    WHOLE = -1

    def __init__(self) -> None:
        self.first, self.storage = array("q"), array("i")
        self.form: list[SavedTensor] = []

    def add(self, saved: SavedTensor) -> None:
        """One slot that shares nothing with others."""
        self.form.append(saved)
        self.storage.append(self.WHOLE)

    def between(self, start: int, stop: int) -> tuple[SavedTensor, ...]:
        """The slots from `start` to before `stop`."""
        if start == stop:
            return ()
        form, storage = self.form, self.storage
        return tuple(
            [
                form[i] if storage[i] < 0 else _new(SavedTensor, (*form[i][:2], storage[i], *form[i][3:]))
                for i in range(start, stop)
            ]
        )


class TypeFacts(NamedTuple):
    """What all nodes of one type share."""

    op: str
    flags: tuple[NodeFlag, ...]
    function: Function | None


class NodeColumns(Columns[Node]):
    """Nodes by id. `flags`, `names` and `none_inputs` hold only those of nodes that differ from others of their type."""

    __slots__ = (
        "attributes",
        "flags",
        "names",
        "none_inputs",
        "outputs",
        "saved",
        "scope",
        "sequence",
        "source",
        "type",
    )

    def __init__(self) -> None:
        self.type: list[TypeFacts] = []
        self.outputs: list[tuple[TensorInfo | None, ...]] = []
        self.sequence = array("Q")
        self.scope: list[int | None] = []
        self.source: list[SourceLine | None] = []
        self.attributes: list[Mapping[str, Any]] = []
        self.saved = SavedColumns()
        self.flags: dict[int, tuple[NodeFlag, ...]] = {}
        self.names: dict[int, tuple[str, ...]] = {}
        self.none_inputs: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.type)

    def read_nothing(self) -> None:
        """No node has attributes or saved tensors."""
        self.attributes = [NO_ATTRIBUTES] * len(self)
        self.saved.first = array("q", bytes(8 * (len(self) + 1)))

    def add(self, type: TypeFacts, outputs: tuple[TensorInfo | None, ...], names: tuple[str, ...]) -> None:
        """One node more, without a number, place, attributes or saved tensors."""
        self.names[len(self)] = names
        self.type.append(type)
        self.outputs.append(outputs)
        self.sequence.append(UNNUMBERED)
        self.scope.append(None)
        self.source.append(None)
        self.attributes.append(NO_ATTRIBUTES)
        self.saved.first.append(len(self.saved.form))

    def _between(self, start: int, stop: int) -> Iterator[Node]:
        first = self.saved.first
        columns: tuple[Sequence[Any], ...] = (
            self.type,
            self.outputs,
            self.sequence,
            self.scope,
            self.source,
            self.attributes,
            first,
        )
        if stop - start < len(self):
            columns = tuple([column[start:stop] for column in columns])
        ends = islice(first, start + 1, stop + 1)
        saved, flags, names, nones = self.saved.between, self.flags, self.names, self.none_inputs
        for i, (type, outputs, sequence, scope, source, attributes, begin), end in zip(
            range(start, stop), zip(*columns), ends
        ):
            fields = (
                i,
                type.op,
                outputs,
                sequence if sequence != UNNUMBERED else None,
                scope,
                source,
                attributes,
                saved(begin, end) if begin < end else (),
                flags.get(i, type.flags),
                names.get(i, ()),
                nones.get(i, 0),
                type.function,
                None,
            )
            yield _new(Node, fields)
