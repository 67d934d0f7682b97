"""The tensors of a program: the facts of every tensor that its variables hold, as plain
data and as a table.

Reads live tensors and changes nothing of them: no node is made, no warning is set off,
no copy-on-write tensor is copied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from gradviz.armour.isolation import isolated
from gradviz.graph import TensorInfo
from gradviz.report import labels
from gradviz.stages import Stage
from gradviz.variables.scanner import NamedValue, Namespace, scan
from gradviz.walker.names import outermost, registered
from gradviz.walker.tensors import (
    answers_itself,
    base_of,
    memory_of,
    tensor_info,
    version_of,
)
from gradviz.wording import number, one_line, plural, shape_text

if TYPE_CHECKING:
    from gradviz.report.rich_parts import RenderableType
    from gradviz.report.table import Kind


class Grad(NamedTuple):
    """What `.grad` holds: its facts, its norm where it can be computed, and its value
    when it is a single real number.
    """

    tensor: TensorInfo
    norm: float | None
    value: float | None


class TensorFacts(NamedTuple):
    """One tensor. What is None was not read, because reading could change something, or
    does not exist.

    `grad_fn` is "" for none. `base` is the names of the tensor that this one is a view
    of, empty when that has no name; `view` says whether it is a view. `storage` is a
    letter that all listed tensors on one storage share, "" when no other listed tensor
    does.
    """

    names: tuple[str, ...]
    kind: str  # "parameter", "buffer" or "tensor"
    tensor: TensorInfo
    is_leaf: bool | None
    requires_grad: bool | None
    retains_grad: bool | None
    grad_fn: str | None
    grad: Grad | None
    version: int | None
    view: bool
    base: tuple[str, ...]
    storage: str
    storage_bytes: int | None
    stride: tuple[int, ...] | None
    offset: int | None


class _Named(NamedTuple):
    tensor: torch.Tensor
    names: list[str]
    kind: str


def inventory(variables: Sequence[Namespace]) -> tuple[TensorFacts, ...]:
    """Facts of every tensor among the variables (inner namespace first), in modules,
    and in containers of them.

    A tensor that several variables hold is listed once, with all their names. Names
    that begin with `_` are left out.
    """
    listed = _collect(variables)
    with isolated(), Stage("read", "tensors", total=len(listed)) as reading:
        letters = _letters([named.tensor for named in listed.values()])
        return tuple(
            _read(named, listed, letters) for named in reading.each(listed.values())
        )


# -- finding ---------------------------------------------------------------------------


def _collect(variables: Sequence[Namespace]) -> dict[int, _Named]:
    """By identity, while the variables keep them alive. Several variables all name a
    tensor; else its best name does.
    """
    listed: dict[int, _Named] = {}
    values = [
        named
        for named in scan(variables)
        if not named.private and not _hidden(named, variables)
    ]

    for named in values:
        if named.kind == "tensor" and not named.level:
            if issubclass(type(named.value), torch.nn.Parameter):
                kind = "parameter"
            else:
                kind = "tensor"
            listed.setdefault(
                id(named.value), _Named(named.value, [], kind)
            ).names.append(named.name)

    plain = set(listed)
    for name, module in outermost(values):
        for member, tensor, kind in registered(name, module):
            if id(tensor) not in plain:
                listed.setdefault(id(tensor), _Named(tensor, [], kind)).names.append(
                    member
                )

    for named in sorted(values, key=lambda named: named.rank):
        if named.kind == "tensor":
            listed.setdefault(
                id(named.value), _Named(named.value, [named.name], "tensor")
            )

    return listed


def _hidden(named: NamedValue, variables: Sequence[Namespace]) -> bool:
    """Whether an inner variable hides the one that the name begins with."""
    first = re.split(r"[.\[]", named.name, maxsplit=1)[0]
    return any(first in space for space in variables[: named.space])


def _letters(tensors: Sequence[torch.Tensor]) -> dict[int, str]:
    """A letter for each storage that two or more of the tensors share, by the storage's
    identity.
    """
    # a meta tensor or one of a subclass may have none
    storages = filter(None, map(memory_of, tensors))
    count = Counter(storage[0] for storage in storages)
    shared = [storage for storage, users in count.items() if users > 1]
    return {storage: _letter(i) for i, storage in enumerate(shared)}


def _letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text


# -- facts -----------------------------------------------------------------------------


def _read(
    named: _Named, listed: dict[int, _Named], letters: dict[int, str]
) -> TensorFacts:
    tensor, base, storage = named.tensor, base_of(named.tensor), memory_of(named.tensor)
    is_leaf = retains = requires_grad = grad_fn = None
    # asking a view whose base requires grad and was modified in place could make a new
    # node
    if not (
        base is not None
        and base.requires_grad
        and not tensor.is_inference()
        and tensor._version > 0
    ):
        is_leaf, retains, requires_grad = (
            tensor.is_leaf,
            tensor.retains_grad,
            tensor.requires_grad,
        )
        grad_fn = tensor.grad_fn.name() if tensor.grad_fn is not None else ""

    info = tensor_info(tensor)
    strided = info.layout == "strided"
    base_names: tuple[str, ...] = ()
    if base is not None and id(base) in listed:
        base_names = tuple(listed[id(base)].names)

    return TensorFacts(
        names=tuple(named.names),
        kind=named.kind,
        tensor=info,
        is_leaf=is_leaf,
        requires_grad=requires_grad,
        retains_grad=retains,
        grad_fn=grad_fn,
        grad=_grad(tensor) if is_leaf or retains else None,
        version=version_of(tensor),
        view=base is not None,
        base=base_names,
        storage=letters.get(storage[0], "") if storage is not None else "",
        storage_bytes=storage[1] if storage is not None else None,
        stride=tuple(map(int, tensor.stride())) if strided else None,
        offset=int(tensor.storage_offset()) if strided else None,
    )


def _grad(tensor: torch.Tensor) -> Grad | None:
    """Read only of a leaf, or of a tensor that retains its gradient: for others torch
    warns, and there is none.
    """
    gradient = tensor.grad
    if gradient is None:
        return None

    norm = value = None
    try:
        with torch.no_grad():
            entries = gradient if answers_itself(gradient) else gradient.detach()
            if entries.layout == torch.sparse_coo:
                entries = entries.coalesce().values()
            if not entries.is_meta and not answers_itself(entries):
                single = entries.numel() == 1 and not entries.is_complex()
                norm, value = _norm(entries), float(entries) if single else None
    except Exception:  # a tensor without values, such as a fake one
        norm = value = None

    return Grad(tensor_info(gradient), norm, value)


def _norm(entries: torch.Tensor) -> float:
    # the squares of float16 overflow
    wide = entries if entries.is_complex() else entries.to(torch.float64)
    return float(torch.linalg.vector_norm(wide))


# -- as a table ------------------------------------------------------------------------


UNREAD = "?"
_NONE = "-"


def tensors_table(every: Sequence[TensorFacts], top: int = 0) -> RenderableType:
    """The first `top` tensors (0 for all), and what the marks in the table mean."""
    from gradviz.report.rich_parts import Group, Text
    from gradviz.report.table import Amount, Column, FittedTable

    def cell(column: _Fact, row: TensorFacts) -> Text:
        words = one_line(column.cell(row))
        if column.value is not None:
            return Amount(column.value(row), words)
        return Text(words)

    shown = every[:top] if top else every
    columns = [
        column
        for column in _COLUMNS
        if column.title not in _OPTIONAL or _says_something(column, shown)
    ]

    def cells(row: TensorFacts) -> list[Text]:
        return [cell(column, row) for column in columns]

    table = FittedTable(
        [Column(column.title, column.kind, column.drop_order) for column in columns],
        list(map(cells, shown)),
    )
    return Group(table, Text(), *[Text(line, "dim") for line in _remarks(every, shown)])


def _says_something(column: _Fact, shown: Sequence[TensorFacts]) -> bool:
    return any(column.cell(row) not in (_NONE, "no", "cpu") for row in shown)


def _yes(value: bool | None) -> str:
    return UNREAD if value is None else "yes" if value else "no"


def _dtype(row: TensorFacts) -> str:
    if row.tensor.layout == "strided":
        return row.tensor.dtype
    return f"{row.tensor.dtype} {row.tensor.layout}"


def _grad_fn(row: TensorFacts) -> str:
    return UNREAD if row.grad_fn is None else row.grad_fn.rpartition("::")[2] or _NONE


def _gradient(row: TensorFacts) -> str:
    if row.grad is None:
        return _NONE if row.is_leaf is not None else UNREAD
    if row.grad.value is not None:
        return number(row.grad.value)
    if row.grad.tensor.shape == row.tensor.shape:
        shape = ""
    else:
        shape = shape_text(row.grad.tensor.shape)
    norm = "unknown" if row.grad.norm is None else f"norm {number(row.grad.norm)}"
    return f"{shape} {norm}".strip()


def _value_or_norm(row: TensorFacts) -> float | None:
    if row.grad is None:
        return None
    return row.grad.norm if row.grad.value is None else row.grad.value


class _Fact(NamedTuple):
    """One column of the table: its text for a tensor, and the exact number where it is
    one.
    """

    title: str
    kind: Kind
    drop_order: int
    cell: Callable[[TensorFacts], str]
    value: Callable[[TensorFacts], float | None] | None = None


_COLUMNS = (
    _Fact("name", "name", 0, lambda row: labels.names_text(row.names)),
    _Fact("shape", "word", 0, lambda row: shape_text(row.tensor.shape)),
    _Fact("dtype", "word", 6, _dtype),
    _Fact("device", "word", 9, lambda row: row.tensor.device),
    _Fact("leaf", "word", 7, lambda row: _yes(row.is_leaf)),
    _Fact("requires grad", "word", 11, lambda row: _yes(row.requires_grad)),
    _Fact("retains grad", "word", 8, lambda row: _yes(row.retains_grad)),
    _Fact("grad_fn", "code", 10, _grad_fn),
    _Fact("grad", "word", 0, _gradient, _value_or_norm),
    _Fact(
        "version",
        "number",
        4,
        lambda row: _NONE if row.version is None else str(row.version),
        lambda row: row.version,
    ),
    _Fact(
        "view of",
        "name",
        5,
        lambda row: (labels.names_text(row.base) or "unnamed") if row.view else _NONE,
    ),
    _Fact("storage", "word", 3, lambda row: row.storage or _NONE),
    _Fact(
        "stride",
        "word",
        1,
        lambda row: shape_text(row.stride) if row.stride is not None else _NONE,
    ),
    _Fact(
        "offset",
        "number",
        2,
        lambda row: _NONE if row.offset is None else str(row.offset),
        lambda row: row.offset,
    ),
)
_OPTIONAL = {
    "device": "all are on the cpu",
    "retains grad": "none retains its gradient",
    "view of": "none is a view",
    "storage": "no two share a storage",
}
"""The columns that are left out where no tensor has anything to say in them, and what
is said then.
"""


def _remarks(every: Sequence[TensorFacts], shown: Sequence[TensorFacts]) -> list[str]:
    remarks = [plural(len(every), "tensor")]
    if len(shown) < len(every):
        remarks.append(labels.more(len(every) - len(shown)))

    if any(row.storage for row in shown):
        remarks.append("storage: tensors with the same letter share their memory")

    if any(row.is_leaf is None for row in shown):
        remarks.append(
            f"{UNREAD}: a view of a tensor that was modified in place; asking for its grad_fn would add to the graph"
        )

    left = [
        _OPTIONAL[column.title]
        for column in _COLUMNS
        if column.title in _OPTIONAL and not _says_something(column, shown)
    ]

    return [*remarks, "; ".join(left)] if left else remarks
