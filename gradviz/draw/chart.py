"""A chart of bars under a drawing, for graphs of which a feature has one to show. Knows
no format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradviz.features import hook
from gradviz.graph import Graph
from gradviz.wording import bar


class Bar(NamedTuple):
    """How long a bar is, as a part of the longest one, and what stands beside it."""

    part: float
    text: str


class Chart(NamedTuple):
    """Bars below a title."""

    title: str = ""
    bars: tuple[Bar, ...] = ()


def chart_of(graph: Graph) -> Chart:
    """The chart of a graph; without a bar where there is none."""
    of_ranks = hook("gradviz.ranks.bars:chart") if graph.by_rank else None
    found: Chart = of_ranks(graph.by_rank) if of_ranks is not None else Chart()
    return found


def chart_lines(chart: Chart) -> Iterator[str]:
    """The chart as text."""
    if chart.bars:
        yield f"{chart.title}:"
    for part, text in chart.bars:
        yield f"{bar(part or None, 12):12}  {text}"
