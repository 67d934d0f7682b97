"""The tensors of a program as a table. Facts come from `gradviz.tensors.inventory`; this module only words and aligns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.report import labels
from gradviz.wording import number, one_line, plural, shape_text

if TYPE_CHECKING:
    from gradviz.tensors.inventory import TensorFacts

UNREAD = "?"
_NONE = "-"


def tensors_table(every: Sequence[TensorFacts], top: int | None = None) -> RenderableType:
    """The first `top` tensors (0 or None for all), and what the marks in the table mean."""
    shown = every[:top] if top else every
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = [column for column in _COLUMNS if column[0] not in _OPTIONAL or _says_something(column[1], shown)]
    for title, _ in columns:
        table.add_column(title, no_wrap=title != "name", justify="right" if title in ("version", "offset") else "left")
    for one in shown:
        table.add_row(*(Text(one_line(cell(one))) for _, cell in columns))
    return Group(table, Text(), *[Text(line, style="dim") for line in _remarks(every, shown)])


def _says_something(cell: Callable[[TensorFacts], str], shown: Sequence[TensorFacts]) -> bool:
    return any(cell(one) not in (_NONE, "no", "cpu") for one in shown)


def _yes(value: bool | None) -> str:
    return UNREAD if value is None else "yes" if value else "no"


def _shape(one: TensorFacts) -> str:
    return shape_text(one.tensor.shape)


def _dtype(one: TensorFacts) -> str:
    return one.tensor.dtype if one.tensor.layout == "strided" else f"{one.tensor.dtype} {one.tensor.layout}"


def _grad_fn(one: TensorFacts) -> str:
    return UNREAD if one.grad_fn is None else one.grad_fn.rpartition("::")[2] or _NONE


def _grad(one: TensorFacts) -> str:
    if one.grad is None:
        return _NONE if one.is_leaf is not None else UNREAD
    if one.grad.value is not None:
        return number(one.grad.value)
    what = shape_text(one.grad.tensor.shape)
    return what if one.grad.norm is None else f"{what} norm {number(one.grad.norm)}"


def _view(one: TensorFacts) -> str:
    return _NONE if not one.view else labels.names_text(one.base) or "unnamed"


def _stride(one: TensorFacts) -> str:
    return _NONE if one.stride is None else shape_text(one.stride)


_COLUMNS: tuple[tuple[str, Callable[[TensorFacts], str]], ...] = (
    ("name", lambda one: labels.names_text(one.names)),
    ("shape", _shape),
    ("dtype", _dtype),
    ("device", lambda one: one.tensor.device),
    ("leaf", lambda one: _yes(one.is_leaf)),
    ("requires grad", lambda one: _yes(one.requires_grad)),
    ("retains grad", lambda one: _yes(one.retains_grad)),
    ("grad_fn", _grad_fn),
    ("grad", _grad),
    ("version", lambda one: _NONE if one.version is None else str(one.version)),
    ("view of", _view),
    ("storage", lambda one: one.storage or _NONE),
    ("stride", _stride),
    ("offset", lambda one: _NONE if one.offset is None else str(one.offset)),
)
_OPTIONAL = ("device", "retains grad", "view of", "storage")  # left out where no tensor has anything to say in them


def _remarks(every: Sequence[TensorFacts], shown: Sequence[TensorFacts]) -> list[str]:
    found = [plural(len(every), "tensor")]
    if len(shown) < len(every):
        found.append(labels.more(len(every) - len(shown)))
    if any(one.storage for one in shown):
        found.append("storage: tensors with the same letter share their memory")
    if any(one.is_leaf is None for one in shown):
        found.append(
            f"{UNREAD}: a view of a tensor that was modified in place; asking for its grad_fn would add to the graph"
        )
    left = [title for title, cell in _COLUMNS if title in _OPTIONAL and not _says_something(cell, shown)]
    words = {
        "device": "all are on the cpu",
        "retains grad": "none retains its gradient",
        "view of": "none is a view",
        "storage": "no two share a storage",
    }
    return [*found, *(["; ".join(words[title] for title in left)] if left else [])]
