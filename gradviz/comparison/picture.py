"""Two graphs in one picture, whose colours say what became of each part.

The difference of two graphs is the second graph, with what only the first one had drawn
among it; edges that came or went between nodes of both say so themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradviz.comparison.diff import GraphDiff, Joined
from gradviz.draw.options import Options
from gradviz.draw.palette import BoxKind
from gradviz.draw.picture import compose
from gradviz.draw.scene import Box, Legend, Link, Scene, scene
from gradviz.draw.svg import write
from gradviz.wording import count_text, plural

_MEANING = (
    Legend("added", "only in the second graph"),
    Legend("removed", "only in the first graph"),
    Legend("changed", "in both, and changed"),
)


def render(difference: GraphDiff, options: Options) -> Iterator[str]:
    """The difference as an SVG file, in pieces. Nothing is folded."""
    graph = difference.joined.graph
    return write(
        compose(
            graph,
            _colored(scene(graph, options), difference, difference.joined),
            options,
        ),
        options.theme,
    )


def _colored(drawn: Scene, difference: GraphDiff, both: Joined) -> Scene:
    kinds: dict[int, BoxKind] = dict.fromkeys(difference.added, "added")
    kinds.update((both.number[node], "removed") for node in difference.removed)
    kinds.update((node.after, "changed") for node in difference.changed)

    def colored(box: Box) -> Box:
        # an output stands for no node of its own
        if box.node is None or box.kind == "output":
            return box
        return box._replace(kind=kinds.get(box.node, box.kind))

    boxes = tuple(map(colored, drawn.boxes))
    # on edges between nodes of both graphs, by consumer and producer
    words: dict[tuple[int | None, int | None], str] = {}

    for word, edges in (("removed", both.gone), ("added", difference.added_edges)):
        for edge in edges:
            if {kinds.get(edge.consumer), kinds.get(edge.producer)} <= {
                None,
                "changed",
            }:
                words[edge.consumer, edge.producer] = word

    def labelled(link: Link) -> Link:
        ends = boxes[link.target].node, boxes[link.source].node
        if link.style != "data" or ends not in words:
            return link
        return link._replace(label=words[ends], short="")

    links = tuple(map(labelled, drawn.links))
    used = {box.kind for box in boxes}
    legend = tuple(entry for entry in (*_MEANING, *drawn.legend) if entry.kind in used)
    return drawn._replace(
        boxes=boxes,
        links=links,
        legend=legend,
        footer=(*drawn.footer, _counts(difference)),
    )


def _counts(difference: GraphDiff) -> str:
    return (
        f"{plural(len(difference.added), 'node')} added, {count_text(len(difference.removed))} removed, "
        f"{count_text(len(difference.changed))} changed; {plural(len(difference.added_edges), 'edge')} added, "
        f"{count_text(len(difference.removed_edges))} removed"
    )
