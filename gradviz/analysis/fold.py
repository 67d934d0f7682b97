"""A smaller Graph for a first look: modules, repeats and loops as single boxes, found so that the picture fits a screen.

`fold` chooses which module calls are open (their ops are shown) and closed (one box). Closed calls of one module become one
box ("×12"), closed siblings of one structure too ("12 alike"), and so do ops that repeat outside modules. Whatever
is joined, the boxes never form a cycle other than a box with itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from gradviz.analysis.alike import alike_siblings
from gradviz.analysis.join import Family, join_families, join_ops, module_title
from gradviz.analysis.partition import Part, Partition
from gradviz.analysis.scopes import ScopeTree
from gradviz.errors import FormatError, did_you_mean
from gradviz.graph import Graph

Depth = Literal["auto", "all"] | int
LIMIT = 100
"""Boxes that a first picture may have: about what fits a screen and can be read."""


def fold(
    graph: Graph, *, depth: Depth = "auto", focus: str | None = None, expand: Iterable[str] = (), limit: int = LIMIT
) -> Graph:
    """The graph with module calls, repeats and loops as single boxes. Folding a folded graph folds its original anew.

    Args:
        depth: how many levels of modules to show: 1 draws each outermost module as one box. "all" folds nothing;
            "auto" shows as much as fits into `limit` boxes.
        focus: path of one module to open; everything outside it stays closed.
        expand: paths of modules to open whatever `depth` says.
        limit: how many boxes "auto" may use.

    Raises FormatError for a depth below 1 and for a path that no recorded module has.
    """
    graph = graph.original or graph
    expand = tuple(expand)
    if isinstance(depth, int) and depth < 1:
        raise FormatError(f"depth cannot be {depth}: 1 draws each outermost module as one box, 'all' draws every op")
    folder = _Folder(graph, ScopeTree(graph))
    folder.check([*([focus] if focus else []), *expand])
    if focus is None and not expand and (depth == "all" or (depth == "auto" and len(graph.nodes) <= limit)):
        return graph
    levels = range(1, folder.deepest + 1) if depth == "auto" else [folder.deepest if depth == "all" else depth]
    best: Partition | None = None
    for level in levels:
        view = folder.view(level, focus, expand, whole=depth == "all")
        if best is not None and view.size() > limit:
            break
        best = view
    return best.folded() if best is not None else graph


@dataclass
class _Folder:
    graph: Graph
    tree: ScopeTree

    def __post_init__(self) -> None:
        self.deepest = max(self.tree.depth, default=0) + 1
        self._alike: dict[int | None, list[list[int]]] = {}

    def check(self, paths: Collection[str]) -> None:
        """Raise FormatError for a path that is no module's."""
        known = {scope.path for scope in self.tree.scopes}
        for path in paths:
            if path not in known:
                hint = did_you_mean(path, known, what="modules") if known else "No modules were recorded in this graph."
                raise FormatError(f"there is no module {path!r} in this graph. {hint}")

    def view(self, level: int, focus: str | None, expand: Collection[str], *, whole: bool) -> Partition:
        """The boxes when `level` levels of modules are shown."""
        is_open = self._open(level, focus, expand, whole)
        partition = Partition(self.graph)
        closed = self._close(partition, is_open)
        if not whole:
            join_families(partition, self._families(closed))
            join_ops(partition)
        _absorb_parameters(partition)
        return partition

    # -- which calls are open ----------------------------------------------------------------------------------------

    def _open(self, level: int, focus: str | None, expand: Collection[str], whole: bool) -> bytearray:
        """Whether each call is open: all around it are, and its depth and its place among alike calls allow it."""
        tree = self.tree
        forced = {
            around
            for path in (*expand, *([focus] if focus else []))
            for s in tree.named(path)
            for around in tree.around(s)
        }
        inside = {
            s for s in range(len(tree.scopes)) if focus and any(tree.scopes[a].path == focus for a in tree.around(s))
        }
        first_level = tree.depth[min(tree.named(focus))] if focus else 0
        later = set() if whole else self._later()
        is_open = bytearray(len(tree.scopes))
        for scope in tree.top_down:
            parent = tree.scopes[scope].parent
            if parent is not None and not is_open[parent]:
                continue
            if scope in forced:
                is_open[scope] = 1
            elif scope not in later and (not focus or scope in inside):
                is_open[scope] = tree.depth[scope] - first_level < level
        return is_open

    def _later(self) -> set[int]:
        """Calls that show nothing new: repeats of a module and alike siblings, except the first of each."""
        found: set[int] = set()
        for siblings in self._siblings(range(len(self.tree.scopes))).values():
            seen: set[str] = set()
            for scope in siblings:
                path = self.tree.scopes[scope].path
                if path in seen:
                    found.add(scope)
                seen.add(path)
        for parent in [None, *range(len(self.tree.scopes))]:
            for family in self._alike_under(parent):
                found.update(family[1:])
        return found

    def _siblings(self, scopes: Iterable[int]) -> dict[int | None, list[int]]:
        found: dict[int | None, list[int]] = {}
        for scope in scopes:
            found.setdefault(self.tree.scopes[scope].parent, []).append(scope)
        return found

    def _alike_under(self, parent: int | None) -> list[list[int]]:
        """Sets of alike calls of different modules, made directly inside `parent`."""
        if parent not in self._alike:
            siblings = self.tree.outermost if parent is None else self.tree.children[parent]
            self._alike[parent] = alike_siblings(self.graph, self.tree, siblings) if len(siblings) > 1 else []
        return self._alike[parent]

    # -- closing calls, and joining closed ones -----------------------------------------------------------------------

    def _close(self, partition: Partition, is_open: bytearray) -> list[int]:
        """Put the nodes of each outermost closed call into one box. Returns those calls."""
        closed = []
        for scope in self.tree.top_down:
            parent = self.tree.scopes[scope].parent
            if not is_open[scope] and (parent is None or is_open[parent]) and self.tree.members[scope]:
                partition.join(
                    self.tree.members[scope], Part("module", module_title(self.tree.scopes[scope]), scope=parent)
                )
                closed.append(scope)
        return closed

    def _families(self, closed: list[int]) -> list[Family]:
        """Closed calls that may become one box: calls of one module, and alike siblings."""
        families: list[Family] = []
        for parent, siblings in self._siblings(closed).items():
            here = set(siblings)
            taken: set[int] = set()
            for alike in self._alike_under(parent):
                turns = [scope for scope in alike if scope in here]
                if len(turns) > 1:
                    families.append(self._family("alike", turns, parent))
                    taken.update(turns)
            calls: dict[str, list[int]] = {}
            for scope in siblings:
                if scope not in taken:
                    calls.setdefault(self.tree.scopes[scope].path, []).append(scope)
            families.extend(self._family("repeat", turns, parent) for turns in calls.values() if len(turns) > 1)
        return families

    def _family(self, kind: Literal["alike", "repeat"], turns: list[int], parent: int | None) -> Family:
        turns = sorted(turns, key=lambda scope: self.tree.place[scope])
        members = tuple(tuple(self.tree.members[scope]) for scope in turns)
        return Family(kind, tuple(self.tree.scopes[scope] for scope in turns), members, parent)


def _absorb_parameters(partition: Partition) -> None:
    """A parameter that only one box uses belongs to it; one that several use stays visible between them."""
    graph = partition.graph
    for leaf in graph.leaves:
        users = {partition.box_of[edge.consumer] for edge in graph.consumers(leaf.node)}
        box = users.pop() if len(users) == 1 else -1
        part = partition.parts.get(box)
        if leaf.kind == "parameter" and part is not None and part.owns:
            partition.box_of[leaf.node] = box
