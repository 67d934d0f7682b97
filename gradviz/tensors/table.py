"""The tensors of a program as a table. Facts come from `gradviz.tensors`; this module only words and aligns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from gradviz.report import labels
from gradviz.report.results import borderless
from gradviz.wording import number, one_line, plural, shape_text

if TYPE_CHECKING:
    from gradviz.tensors import TensorFacts

UNREAD = "?"
_NONE = "-"


def tensors_table(every: Sequence[TensorFacts], top: int | None = None) -> RenderableType:
    """The first `top` tensors (0 or None for all), and what the marks in the table mean."""
    shown = every[:top] if top else every
    table = borderless()
    columns = [column for column in _COLUMNS if column[0] not in _OPTIONAL or _says_something(column[1], shown)]
    for title, _ in columns:
        table.add_column(title, no_wrap=title != "name", justify="right" if title in ("version", "offset") else "left")
    for row in shown:
        table.add_row(*(Text(one_line(cell(row))) for _, cell in columns))
    return Group(table, Text(), *[Text(line, style="dim") for line in _remarks(every, shown)])


def _says_something(cell: Callable[[TensorFacts], str], shown: Sequence[TensorFacts]) -> bool:
    return any(cell(row) not in (_NONE, "no", "cpu") for row in shown)


def _yes(value: bool | None) -> str:
    return UNREAD if value is None else "yes" if value else "no"


def _shape(row: TensorFacts) -> str:
    return shape_text(row.tensor.shape)


def _dtype(row: TensorFacts) -> str:
    return row.tensor.dtype if row.tensor.layout == "strided" else f"{row.tensor.dtype} {row.tensor.layout}"


def _grad_fn(row: TensorFacts) -> str:
    return UNREAD if row.grad_fn is None else row.grad_fn.rpartition("::")[2] or _NONE


def _grad(row: TensorFacts) -> str:
    if row.grad is None:
        return _NONE if row.is_leaf is not None else UNREAD
    if row.grad.value is not None:
        return number(row.grad.value)
    what = shape_text(row.grad.tensor.shape)
    return what if row.grad.norm is None else f"{what} norm {number(row.grad.norm)}"


def _view(row: TensorFacts) -> str:
    return _NONE if not row.view else labels.names_text(row.base) or "unnamed"


def _stride(row: TensorFacts) -> str:
    return _NONE if row.stride is None else shape_text(row.stride)


_COLUMNS: tuple[tuple[str, Callable[[TensorFacts], str]], ...] = (
    ("name", lambda row: labels.names_text(row.names)),
    ("shape", _shape),
    ("dtype", _dtype),
    ("device", lambda row: row.tensor.device),
    ("leaf", lambda row: _yes(row.is_leaf)),
    ("requires grad", lambda row: _yes(row.requires_grad)),
    ("retains grad", lambda row: _yes(row.retains_grad)),
    ("grad_fn", _grad_fn),
    ("grad", _grad),
    ("version", lambda row: _NONE if row.version is None else str(row.version)),
    ("view of", _view),
    ("storage", lambda row: row.storage or _NONE),
    ("stride", _stride),
    ("offset", lambda row: _NONE if row.offset is None else str(row.offset)),
)
_OPTIONAL = ("device", "retains grad", "view of", "storage")  # left out where no tensor has anything to say in them


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
    left = [title for title, cell in _COLUMNS if title in _OPTIONAL and not _says_something(cell, shown)]
    words = {
        "device": "all are on the cpu",
        "retains grad": "none retains its gradient",
        "view of": "none is a view",
        "storage": "no two share a storage",
    }
    return [*remarks, *(["; ".join(words[title] for title in left)] if left else [])]
