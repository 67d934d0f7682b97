"""Views of a graph: which module calls are open, and the boxes that follow from it.

An open call shows what is in it, a closed one is one box. Closed calls of one module become one box ("×12"), closed siblings of one
structure too ("12 alike"), and so do ops that repeat outside modules. Which view is wanted is decided by `fold`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from gradviz.errors import FormatError, did_you_mean
from gradviz.fold.calls import Closing, Family, alike_siblings, join_families
from gradviz.fold.functions import with_functions
from gradviz.fold.partition import Earlier, Partition
from gradviz.fold.repeats import join_ops
from gradviz.fold.segments import join_loose
from gradviz.graph import Graph
from gradviz.graph.scopes import ScopeTree

CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")
"""Classes of modules that say nothing of what is in them."""
FEW = 4
"""Ops of a call that calls no others, up to which a box says about as much as its ops would."""


class Opening(NamedTuple):
    """Calls to open together, and the ops in all calls of their class. A layer is a module of a class with several calls."""

    calls: tuple[int, ...]
    ops: int
    is_layer: bool = False


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to open: `level` levels of modules (inside `focus`, when there is one), the calls in `also`, and modules in `expand`.

    Repeats and alike siblings after the first stay closed unless `every` one is wanted. Without `join`, every closed call is a
    box of its own. With `tight`, single ops that follow one another are one box, except inside calls that call no others.
    """

    level: int
    focus: str | None = None
    also: frozenset[int] = frozenset()
    expand: tuple[str, ...] = ()
    every: bool = False
    join: bool = True
    tight: bool = False


class Views:
    """Makes the views of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.original = graph
        self.graph = graph = with_functions(graph)
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
            self._name_later(partition, closed)
        if wanted.tight:
            asked = self.inside([wanted.focus]) if wanted.focus and wanted.every else set()
            open_ones = (scope for scope in self.tree.top_down if self._calls_others(scope) and scope not in asked)
            join_loose(partition, {None, *open_ones})
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

    def next_inside(self, wanted: Wanted) -> list[Opening]:
        """What `wanted` could open beside, the heaviest kind of module first: for each, the first of its closed calls.

        The weight of a kind is the ops in all calls of its class, and less where one of them is open already. With a call come
        the calls inside that are all it contains. Calls with few ops and no calls inside come last, all together.
        """
        tree, is_open = self.tree, self._open(wanted)
        first: dict[str, int] = {}
        few: list[int] = []
        for scope in sorted(self._closed(is_open), key=tree.place.__getitem__):
            if scope in self._later:
                continue
            if self._calls_others(scope) or len(tree.members[scope]) > FEW:
                first.setdefault(self._kind(scope), scope)
            else:
                few.append(scope)
        shown = Counter(self._kind(scope) for scope in wanted.also if is_open[scope])
        kinds = sorted(first, key=lambda kind: -self._ops[kind] / (1 + shown[kind]) ** 2)
        openings = [
            Opening(
                self._with_only_child(first[kind]), self._ops[kind], kind not in CONTAINERS and self._kinds[kind] > 1
            )
            for kind in kinds
        ]
        return [*openings, Opening(tuple(few), 0)] if few else openings

    @cached_property
    def _kinds(self) -> Counter[str]:
        """How many calls there are of each class."""
        return Counter(self._kind(scope) for scope, inside in enumerate(self.tree.members) if inside)

    @cached_property
    def _ops(self) -> Counter[str]:
        """How many ops there are in all calls of each class; those inside a call of the same class count once."""
        ops: Counter[str] = Counter()
        for scope in self.tree.top_down:
            kind, outer = self._kind(scope), self.tree.around(self.tree.scopes[scope].parent)
            if all(self._kind(around) != kind for around in outer):
                ops[kind] += len(self.tree.members[scope])
        return ops

    def _kind(self, scope: int) -> str:
        """The class of a module; a function has none and is its own kind."""
        return self.tree.scopes[scope].type or self.tree.scopes[scope].path

    def _with_only_child(self, scope: int) -> tuple[int, ...]:
        chain = [scope]
        for outer in chain:  # grows while it is read
            everything = len(self.tree.members[outer])
            chain.extend(inner for inner in self.tree.children[outer] if len(self.tree.members[inner]) == everything)
        return tuple(chain)

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
                is_open[scope] = True
            is_open[scope] |= scope in forced
        return is_open

    def _calls_others(self, scope: int) -> bool:
        return any(self.tree.members[inner] for inner in self.tree.children[scope])

    @cached_property
    def _later(self) -> set[int]:
        """Calls that show nothing new: repeats of a module and alike siblings, except the first of each."""
        later: set[int] = set()
        for siblings in self._siblings(range(len(self.tree.scopes))).values():
            seen: set[str] = set()
            for scope in siblings:
                path = self.tree.scopes[scope].path
                if path in seen:
                    later.add(scope)
                seen.add(path)
        for parent in [None, *range(len(self.tree.scopes))]:
            for family in self._alike_under(parent):
                later.update(family[1:])
        return later

    def _siblings(self, scopes: Iterable[int]) -> dict[int | None, list[int]]:
        siblings: dict[int | None, list[int]] = {}
        for scope in scopes:
            siblings.setdefault(self.tree.scopes[scope].parent, []).append(scope)
        return siblings

    def _alike_under(self, parent: int | None) -> list[list[int]]:
        """Sets of alike calls of different modules, made directly inside `parent`."""
        if parent not in self._alike:
            siblings = self.tree.outermost if parent is None else self.tree.children[parent]
            self._alike[parent] = alike_siblings(self.graph, self.tree, siblings) if len(siblings) > 1 else []
        return self._alike[parent]

    # -- closing calls, and joining closed ones -----------------------------------------------------------------------

    def _name_later(self, partition: Partition, closed: list[int]) -> None:
        """Number the boxes of later calls of a module whose first call is not in the box, too, and note that one."""
        tree = self.tree
        for scope in closed:
            record = tree.scopes[scope]
            inside, box = tree.members[self._first_call[record.path]], partition.box_of[tree.members[scope][0]]
            part = partition.parts.get(box)
            if part is None or partition.box_of[inside[0]] == box or box in partition.earlier:
                continue
            if part.kind == "module":
                partition.parts[box] = part._replace(title=f"{part.title}, call {record.call:,}")
            partition.earlier[box] = Earlier(tree.scopes[self._first_call[record.path]].call, frozenset(inside))

    @cached_property
    def _first_call(self) -> dict[str, int]:
        """The first call of each module that made nodes."""
        first: dict[str, int] = {}
        for scope in sorted(range(len(self.tree.scopes)), key=self.tree.place.__getitem__):
            if self.tree.members[scope]:
                first.setdefault(self.tree.scopes[scope].path, scope)
        return first

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
