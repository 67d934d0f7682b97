"""Two graphs in one picture, whose colours say what became of each part.

The difference of two graphs is the second graph, with what only the first one had drawn among it; edges that came or went between
nodes of both say so themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from gradviz.comparison.diff import GraphDiff
from gradviz.draw.options import Options
from gradviz.draw.palette import BoxKind
from gradviz.draw.picture import compose
from gradviz.draw.scene import Legend, Scene, scene
from gradviz.draw.svg import write
from gradviz.graph import Edge, Graph, Node
from gradviz.graph.origins import ScopeTree
from gradviz.wording import count_text, plural

_MEANING = (
    Legend("added", "only in the second graph"),
    Legend("removed", "only in the first graph"),
    Legend("changed", "in both, and changed"),
)


def render(difference: GraphDiff, options: Options) -> Iterator[str]:
    """The difference as an SVG file, in pieces. Nothing is folded."""
    both = joined(difference)
    return write(compose(both.graph, _colored(scene(both.graph, options), difference, both), options), options.theme)


class Joined(NamedTuple):
    """One graph of all nodes of two. `number` is the id in it of every node of the first graph; `gone` the edges of that alone."""

    graph: Graph
    number: dict[int, int]
    gone: list[Edge]


def joined(difference: GraphDiff) -> Joined:
    """The second graph and what only the first has, which lies in the module calls of the second where those exist."""
    before, after = difference.before, difference.after
    scopes = _same_scopes(before, after)
    number = dict(difference.matched)
    removed = sorted(difference.removed)
    number.update((node, len(after.nodes) + i) for i, node in enumerate(removed))
    nodes = (*after.nodes, *(_alone(before.nodes[node], number[node], scopes) for node in removed))
    gone = [
        edge._replace(consumer=number[edge.consumer], producer=number[edge.producer])
        for edge in difference.removed_edges
    ]
    edges = sorted((*after.edges, *gone), key=lambda edge: (edge.consumer, edge.position))
    leaves = [
        leaf._replace(node=number[leaf.node], storage=None, base=None) for leaf in before.leaves if leaf.node in removed
    ]
    title = f"{before.title or 'graph'} to {after.title or 'graph'}"
    both = replace(after, nodes=nodes, edges=tuple(edges), leaves=(*after.leaves, *leaves), title=title)
    return Joined(both, number, gone)


def _alone(node: Node, number: int, scopes: Mapping[int, int]) -> Node:
    """A node without what points into its own graph."""
    scope = None if node.scope is None else scopes.get(node.scope)
    return node._replace(id=number, scope=scope, saved=())


def _same_scopes(before: Graph, after: Graph) -> dict[int, int]:
    """Calls of the first graph that the second has, too: or else what is there of those around them."""
    known = {(scope.path, scope.call): i for i, scope in reversed(list(enumerate(after.scopes)))}
    same_as: dict[int, int] = {}
    for i in ScopeTree(before).top_down:
        scope = before.scopes[i]
        same = known.get((scope.path, scope.call))
        if same is None and scope.parent is not None:
            same = same_as.get(scope.parent)
        if same is not None:
            same_as[i] = same
    return same_as


def _colored(drawn: Scene, difference: GraphDiff, both: Joined) -> Scene:
    kinds: dict[int, BoxKind] = dict.fromkeys(difference.added, "added")
    kinds.update((both.number[node], "removed") for node in difference.removed)
    kinds.update((node.after, "changed") for node in difference.changed)
    boxes = tuple(
        box if box.node is None or box.kind == "output" else box._replace(kind=kinds.get(box.node, box.kind))
        for box in drawn.boxes
    )
    words: dict[
        tuple[int | None, int | None], str
    ] = {}  # on edges between nodes of both graphs, by consumer and producer
    for what, edges in (("removed", both.gone), ("added", difference.added_edges)):
        for edge in edges:
            if {kinds.get(edge.consumer), kinds.get(edge.producer)} <= {None, "changed"}:
                words[edge.consumer, edge.producer] = what
    links = tuple(
        link._replace(label=words.get((boxes[link.target].node, boxes[link.source].node), link.label))
        if link.style == "data"
        else link
        for link in drawn.links
    )
    used = {box.kind for box in boxes}
    legend = tuple(entry for entry in (*_MEANING, *drawn.legend) if entry.kind in used)
    return drawn._replace(boxes=boxes, links=links, legend=legend, footer=(*drawn.footer, _counts(difference)))


def _counts(difference: GraphDiff) -> str:
    return (
        f"{plural(len(difference.added), 'node')} added, {count_text(len(difference.removed))} removed, "
        f"{count_text(len(difference.changed))} changed; {plural(len(difference.added_edges), 'edge')} added, "
        f"{count_text(len(difference.removed_edges))} removed"
    )
