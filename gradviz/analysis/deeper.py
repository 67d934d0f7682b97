"""What to ask for to see more of a folded graph: a depth, and a module to open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradviz.analysis.views import Views
from gradviz.graph import Graph


class Deeper(NamedTuple):
    """A depth that opens the largest closed module and leaves open what is open; the path of the largest closed module."""

    depth: int | None = None  # None when a depth opens nothing more
    path: str | None = None  # None when no closed module has a path of its own, or only loops are closed


class _Closed(NamedTuple):
    """A box that stands for calls, by the first of them. `later`: like another one drawn, so that no depth opens it."""

    later: bool
    ops: int
    call: int
    looped: bool


def deeper(folded: Graph) -> Deeper:
    """Where a reader of a folded graph can look next. Takes time proportional to the graph that was folded.

    The largest module is the one with the most ops. Those that no depth opens come last: repeats, and alike modules of which one is
    open or drawn alone.
    """
    if folded.original is None:
        return Deeper()
    views = Views(folded.original)
    tree = views.tree
    closed = sorted(_closed(folded, views), key=lambda one: (one.later, -one.ops, one.call))
    opened = {tree.depth[scope] for node in folded.nodes for scope in tree.around(node.scope)}
    depths = [max(tree.depth[one.call], *opened, 0) + 1 for one in closed if not one.later]
    paths = (tree.scopes[one.call].path for one in closed if not one.looped)
    return Deeper(depths[0] if depths else None, next((path for path in paths if path), None))


def _closed(folded: Graph, views: Views) -> Iterator[_Closed]:
    for node in folded.nodes:
        if node.group is not None and node.group.kind not in ("chain", "more"):
            calls = _calls(views, node.group.nodes, node.scope)
            if calls:
                looped = node.group.count > 1 and node.group.kind != "alike"
                yield _Closed(views.is_later(min(calls)), node.group.ops, min(calls), looped)


def _calls(views: Views, nodes: tuple[int, ...], parent: int | None) -> set[int]:
    """The calls made directly inside `parent` that these nodes lie in; none for a loop of single ops."""
    tree = views.tree
    scopes = {views.graph.nodes[node].scope for node in nodes}
    return {one for scope in scopes for one in tree.around(scope) if tree.scopes[one].parent == parent}
