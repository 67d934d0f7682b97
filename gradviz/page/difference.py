"""The difference of two graphs as a page: both versions in one sheet, with what was added, removed and changed."""

from __future__ import annotations

from collections.abc import Iterator

from gradviz.comparison.diff import GraphDiff
from gradviz.draw.difference import joined
from gradviz.draw.options import Options
from gradviz.draw.output import folded
from gradviz.graph import Graph, column
from gradviz.page.html import compose
from gradviz.page.pack import Pack
from gradviz.report.labels import one_line

ADDED, REMOVED, CHANGED = 1, 2, 3


def render(found: GraphDiff, options: Options) -> Iterator[str]:
    """The page of the second graph, with what only the first had drawn among it."""
    both, number = joined(found)
    kinds = [0] * len(both.nodes)
    for node in found.added:
        kinds[node] = ADDED
    for node in found.removed:
        kinds[number[node]] = REMOVED
    for one in found.changed:
        kinds[one.after] = CHANGED

    def add(pack: Pack) -> None:
        pack.add("diff", kinds)
        pack.put("edgeDiff", _edges(found, both, number))
        pack.put("changes", [[one.after, [f"{one_line(c.what)}: {one_line(c.before)} → {one_line(c.after)}" for c in one.changes]]
                             for one in found.changed])  # fmt: skip

    return compose(folded(both, options), options, add)


def _edges(found: GraphDiff, both: Graph, number: dict[int, int]) -> list[tuple[int, int]]:
    """Edges of the joined graph that came or went, by place, each with what it did."""
    ends = zip(column(both.edges, "consumer"), column(both.edges, "producer"), column(both.edges, "position"))
    places: dict[tuple[int, int, int], list[int]] = {}
    for place, key in enumerate(ends):
        places.setdefault(key, []).append(place)
    made = [(place, ADDED) for e in found.added_edges for place in places[e.consumer, e.producer, e.position][:1]]
    gone = [(number[e.consumer], number[e.producer], e.position) for e in found.removed_edges]
    return sorted({**dict(made), **{places[key][-1]: REMOVED for key in gone}}.items())
