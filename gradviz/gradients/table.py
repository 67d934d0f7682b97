"""Gradient flow as a table: one row per module call, leaf, function or edge, with a bar for the norm.

Numbers come from `gradviz.gradients`; this module only words and aligns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.gradients.rows import (
    By,
    FlowRow,
    best_by,
    rows,
    scale,
)
from gradviz.report import labels
from gradviz.wording import bar, clip, count_text, few, number, one_line, plural, share

if TYPE_CHECKING:
    from gradviz.gradients.flow import GradientFlow

TOP = 50
_WORDS: dict[By, tuple[str, str, str]] = {
    "module": ("module call", "module calls", "in forward order, with the gradient at their outputs"),
    "leaf": ("leaf", "leaves", "in the order of their first use, with their gradients"),
    "node": ("function", "functions", "in backward's order, with the gradient that comes in"),
    "edge": ("edge", "edges", "in backward's order, with the gradient along them"),
}


def flow_table(flow: GradientFlow, by: By | None = None, top: int | None = TOP) -> RenderableType:
    """The first `top` rows (0 or None for all), what bars mean, and the notes."""
    chosen = by or best_by(flow.graph)
    every = rows(flow, chosen)
    shown = every[:top] if top else every
    parts: list[RenderableType] = [Text(_head(flow, chosen, len(every)), style="bold"), Text()]
    if shown:
        parts.append(_table(shown, chosen, [row.norm for row in every]))
    if len(shown) < len(every):
        parts.append(Text(labels.more(len(every) - len(shown)), style="dim"))
    parts += [Text(), *_remarks(every, flow)]
    return Group(*parts)


def _head(flow: GradientFlow, by: By, count: int) -> str:
    names = few([one_line(labels.root_title(root)) for root in flow.graph.roots], 3)
    one, several, rest = _WORDS[by]
    return f"gradient of {names}: {plural(count, one, several)} {rest}"


def _table(shown: Sequence[FlowRow], by: By, norms: Sequence[float | None]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    kinds = any(row.type for row in shown)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column(_WORDS[by][0], overflow="fold", min_width=12)
    if kinds:
        table.add_column({"module": "class", "node": "op"}.get(by, ""), no_wrap=True, overflow="ellipsis")
    for title in ("norm", "max", "zeros", "not finite"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    if by == "module":
        table.add_column("to its leaves", justify="right", no_wrap=True)
    on = scale(norms)
    for row in shown:
        cells = [Text(number(row.number) if row.number is None else str(row.number), style="dim")]
        cells.append(Text(clip(row.name, 60)))
        if kinds:
            cells.append(Text(clip(row.type, 40), style="dim"))
        cells += [*_sizes(row), Text(bar(on.part(row.norm) if on else None), style="cyan")]
        if by == "module":
            cells.append(Text(number(row.parameters)))
        table.add_row(*cells)
    return table


def _sizes(row: FlowRow) -> list[Text]:
    odd = "" if row.nonfinite in (0, None) else count_text(row.nonfinite or 0)
    return [
        Text(number(row.norm), style="bold red" if odd else ""),
        Text(number(row.max)),
        Text(share(row.zeros), style="yellow" if row.zeros == 1 else ""),
        Text(odd, style="bold red"),
    ]


def _remarks(every: Sequence[FlowRow], flow: GradientFlow) -> list[Text]:
    found = []
    on = scale([row.norm for row in every])
    if on is not None:
        words = f"bars: norm on a logarithmic scale, {number(on.low)} to {number(on.high)}"
        found.append(Text(words, style="dim"))
    if any(row.norm is None for row in every):
        found.append(
            Text("-: no gradient comes here" + (", or none was measured" if flow.unmeasured else ""), style="dim")
        )
    return found + [Text(f"note: {one_line(note)}", style="yellow") for note in flow.notes]
