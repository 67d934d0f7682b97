"""Views of a graph: which module calls are open, and the boxes that follow from it.

An open call shows what is in it, a closed one is one box. Closed calls of one module become one box ("×12"), closed siblings of one
structure too ("12 alike"), and so do ops that repeat outside modules. Which view is wanted is decided by `fold`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gradviz.analysis.alike import alike_siblings
from gradviz.analysis.closing import Closing
from gradviz.analysis.join import Family, join_families, join_ops
from gradviz.analysis.partition import Partition
from gradviz.analysis.scopes import ScopeTree
from gradviz.errors import FormatError, did_you_mean
from gradviz.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to open: `level` levels of modules (inside `focus`, when there is one), the calls in `also`, and modules in `expand`.

    Repeats and alike siblings after the first stay closed unless `every` one is wanted. Without `ops`, so do modules that call no
    other module: nothing but ops is in them. Without `join`, every closed call is a box of its own.
    """

    level: int
    focus: str | None = None
    also: frozenset[int] = frozenset()
    expand: tuple[str, ...] = ()
    every: bool = False
    ops: bool = True
    join: bool = True


class Views:
    """Makes the views of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tree = ScopeTree(graph)
        self.deepest = max(self.tree.depth, default=0) + 1
        """The level at which every op is shown."""
        self._closing = Closing(graph, self.tree)
        self._alike: dict[int | None, list[list[int]]] = {}

    def check(self, paths: Collection[str]) -> None:
        """Raise FormatError for a path that is no module's."""
        known = {scope.path for scope in self.tree.scopes}
        for path in paths:
            if path not in known:
                hint = did_you_mean(path, known, what="modules") if known else "No modules were recorded in this graph."
                raise FormatError(f"there is no module {path!r} in this graph. {hint}")

    def view(self, wanted: Wanted) -> Partition:
        """The boxes of a view."""
        is_open = self._open(wanted)
        partition = Partition(self.graph)
        closed = self._closing.close(partition, self._closed(is_open))
        if wanted.join:
            join_families(partition, self._families(closed))
            join_ops(partition)
        return partition

    def is_later(self, scope: int) -> bool:
        """Whether no level opens this call, since it shows nothing new."""
        return any(around in self._later for around in self.tree.around(scope))

    def inside(self, paths: Collection[str]) -> set[int]:
        """All calls of these modules, and all calls inside of them."""
        named = {scope for path in paths for scope in self.tree.named(path)}
        return (
            {scope for scope in self.tree.top_down if named.intersection(self.tree.around(scope))} if named else set()
        )

    def next_inside(self, wanted: Wanted) -> list[int]:
        """Closed calls that `wanted` could open beside, one for each class: the first that calls modules of its own."""
        is_open, tree = self._open(wanted), self.tree
        found: dict[str, int] = {}
        for scope in sorted(self._closed(is_open), key=lambda scope: tree.place[scope]):
            if scope not in self._later and self._calls_others(scope):
                found.setdefault(tree.scopes[scope].type, scope)
        return list(found.values())

    # -- which calls are open ----------------------------------------------------------------------------------------

    def _open(self, wanted: Wanted) -> bytearray:
        """Whether each call is open: all around it are, and its depth and its place among alike calls allow it."""
        tree, focus = self.tree, wanted.focus
        named = [s for path in (*wanted.expand, *([focus] if focus else [])) for s in tree.named(path)]
        forced = {around for s in named for around in tree.around(s)}
        first_level = tree.depth[min(tree.named(focus))] if focus else 0
        later = set() if wanted.every else self._later
        is_open = bytearray(len(tree.scopes))
        inside = bytearray(len(tree.scopes))  # the focus and what it calls
        for scope in tree.top_down:
            parent = tree.scopes[scope].parent
            inside[scope] = not focus or tree.scopes[scope].path == focus or (parent is not None and inside[parent])
            if parent is not None and not is_open[parent]:
                continue
            deep = tree.depth[scope] - first_level >= wanted.level and scope not in wanted.also
            if inside[scope] and not deep and scope not in later:
                is_open[scope] = wanted.ops or self._calls_others(scope)
            is_open[scope] |= scope in forced
        return is_open

    def _calls_others(self, scope: int) -> bool:
        return any(self.tree.members[inner] for inner in self.tree.children[scope])

    @cached_property
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

    def _closed(self, is_open: bytearray) -> list[int]:
        """The outermost closed calls that made nodes."""
        tree = self.tree
        parents = ((scope, tree.scopes[scope].parent) for scope in tree.top_down if not is_open[scope])
        return [scope for scope, parent in parents if tree.members[scope] and (parent is None or is_open[parent])]

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
