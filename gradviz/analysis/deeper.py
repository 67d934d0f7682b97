"""What to ask for to see more of a folded graph: a depth, and a module to open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradviz.analysis.scopes import ScopeTree
from gradviz.graph import Graph, Node


class Deeper(NamedTuple):
    """A depth that opens the largest closed module and leaves open what is open; the path of the largest closed module."""

    depth: int | None = None  # None when a depth opens nothing more
    path: str | None = None  # None when no closed module has a path of its own, or only loops are closed


class _Closed(NamedTuple):
    """A box that stands for calls, by the first of them. `new`: nothing like it is drawn beside it."""

    new: bool
    ops: int
    call: int
    looped: bool


def deeper(folded: Graph) -> Deeper:
    """Where a reader of a folded graph can look next. Takes time proportional to what was folded.

    The largest module is the one with the most ops. Repeats and alike modules whose first is drawn alone come last.
    """
    tree = ScopeTree(folded)
    opened = {around for node in folded.nodes for around in tree.around(node.scope)}
    closed = sorted(_closed(folded, tree, opened), key=lambda one: (not one.new, -one.ops, one.call))
    levels = [tree.depth[one.call] for one in closed[:1] if one.new]
    depth = max(levels + [tree.depth[scope] for scope in opened]) + 1 if levels else None
    paths = (tree.scopes[one.call].path for one in closed if not one.looped)
    return Deeper(depth, next((path for path in paths if path), None))


def _closed(folded: Graph, tree: ScopeTree, opened: set[int]) -> Iterator[_Closed]:
    found = [(node.group, min(calls)) for node in folded.nodes if node.group and (calls := _calls(node, folded, tree))]
    shown = opened | {call for group, call in found if group.count == 1}
    like = {(tree.scopes[scope].parent, tree.scopes[scope].type) for scope in shown}
    for group, call in found:
        scope, single = tree.scopes[call], group.count == 1
        new = single or (scope.call == 1 and (scope.parent, scope.type) not in like)
        yield _Closed(new, group.ops, call, not single and group.kind != "alike")


def _calls(node: Node, folded: Graph, tree: ScopeTree) -> set[int]:
    """The calls that a box stands for; none for a stretch or a loop of single ops."""
    if node.group is None or node.group.kind == "chain" or folded.original is None:
        return set()
    scopes = {folded.original.nodes[inner].scope for inner in node.group.nodes}
    return {one for scope in scopes for one in tree.around(scope) if tree.scopes[one].parent == node.scope}
