"""Views of a graph: which module calls are open, and the boxes that follow from it.

An open call shows what is in it, a closed one is one box. Closed calls of one module become one box ("×12"), closed siblings of one
structure too ("12 alike"), and so do ops that repeat outside modules. Which view is wanted is decided by `fold`.

Ops without a module of their own are grouped by what made them first: a loss, the right side of an ODE, a gradient of a gradient.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from gradviz.errors import FormatError, did_you_mean
from gradviz.fold.calls import Closing, Family, alike_siblings, join_families
from gradviz.fold.ops import join_loose, join_ops
from gradviz.fold.partition import Earlier, Partition
from gradviz.graph import Graph, Scope, SourceLine, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import ScopeTree

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
        first: dict[tuple[int | None, str], int] = {}
        later = {i for i, scope in enumerate(self.tree.scopes) if first.setdefault((scope.parent, scope.path), i) != i}
        return later.union(*(family[1:] for families in self._alike.values() for family in families))

    @cached_property
    def _alike(self) -> Mapping[int | None, list[list[int]]]:
        """Sets of alike calls of different modules, by the call that they were made directly inside of."""
        siblings = (None, self.tree.outermost), *enumerate(self.tree.children)
        return {parent: alike_siblings(self.graph, self.tree, calls) for parent, calls in siblings}

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
        tree, families = self.tree, list[Family]()
        siblings: dict[int | None, list[int]] = {}
        for scope in closed:
            siblings.setdefault(tree.scopes[scope].parent, []).append(scope)
        for parent, here in siblings.items():
            known = set(here)
            alike = [[scope for scope in family if scope in known] for family in self._alike[parent]]
            taken = {scope for turns in alike if len(turns) > 1 for scope in turns}
            calls: dict[str, list[int]] = {}
            for scope in here:
                if scope not in taken:
                    calls.setdefault(tree.scopes[scope].path, []).append(scope)
            for turns in (*alike, *calls.values()):
                if len(turns) > 1:
                    turns.sort(key=tree.place.__getitem__)
                    modules = [tree.scopes[scope] for scope in turns]
                    nodes = [tree.members[scope] for scope in turns]
                    families.append(Family("alike" if turns[0] in taken else "repeat", modules, nodes, parent))
        return families


# Functions. A recorded line names the innermost function only, and not who called it. So a call is a run of ops that one
# function made one after the other, and functions that made the outputs are left alone: they are the script's, or the
# module's own forward.

LEAST_CALLS = 4
"""How often a function is called for its calls to be groups: of three, such as for queries, keys and values, each is read."""
LEAST_OPS = 8
"""Ops that one call outside of all modules makes for it to be a group however seldom the function is called, and ops that a line
without a function of its own makes each time."""
LEAST_GRAD = 4
"""Ops that backward made for one `autograd.grad(..., create_graph=True)` to be a group."""
_GRAD = re.compile(r"\bgrad\(|\bbackward\(.*\bcreate_graph\b")
"""A line where backward makes ops. `loss = net(x).sum(); loss.backward()` is not one."""


class _Run(NamedTuple):
    """Ops that one function made one after the other, directly inside one module call (None: outside of all).

    `name` is `func()`, `grad() line 12` for what backward made there, or `line 12` where the function has no name.
    """

    scope: int | None
    file: str
    name: str
    nodes: list[int]


def with_functions(graph: Graph) -> Graph:
    """The graph with a scope for each call of such a function, `func()`, behind the scopes that it has.

    >>> from gradviz.graph import Node, Root, SourceLine, TensorInfo
    >>> lines = [SourceLine("ode.py", 3, "func") if i % 2 else SourceLine("ode.py", 9, "main") for i in range(9)]
    >>> nodes = tuple(Node(i, "MulBackward0", (), i, source=line) for i, line in enumerate(lines))
    >>> graph = with_functions(Graph(nodes, roots=(Root(8, 0, "y", TensorInfo((), "float32", "cpu")),)))
    >>> [(scope.path, scope.call) for scope in graph.scopes], graph.nodes[3].scope
    ([('func()', 1), ('func()', 2), ('func()', 3), ('func()', 4)], 1)
    """
    runs = list(_runs(graph)) if any(column(graph.nodes, "source")) else []
    count, own = Counter(run[:3] for run in runs), _own(graph, runs)
    calls = [run for run in runs if _is_group(run, count[run[:3]], run[:3] in own)]
    if not calls:
        return graph
    scopes, nodes = list(graph.scopes), list(graph.nodes)
    number: Counter[str] = Counter()
    for run in calls:
        number[run.name] += 1
        for node in run.nodes:
            nodes[node] = nodes[node]._replace(scope=len(scopes))
        scopes.append(Scope(run.name, "", number[run.name], run.scope))
    return replace(graph, scopes=tuple(scopes), nodes=tuple(nodes))


def _is_group(run: _Run, calls: int, is_own: bool) -> bool:
    if run.name.startswith("grad() line"):
        return len(run.nodes) >= LEAST_GRAD
    if run.name.startswith("line "):
        return calls >= LEAST_CALLS and len(run.nodes) >= LEAST_OPS
    return not is_own and (calls >= LEAST_CALLS or (run.scope is None and len(run.nodes) >= LEAST_OPS))


def _runs(graph: Graph) -> Iterator[_Run]:
    sources, scopes, sequences = (column(graph.nodes, name) for name in ("source", "scope", "sequence"))
    numbered = ((node, sources[node]) for node in forward_order(graph) if sequences[node] is not None)
    made = ((node, source, scopes[node]) for node, source in numbered if source is not None)
    for key, run in groupby(made, key=lambda op: (op[2], op[1].file, _name(op[1], op[2]))):
        yield _Run(*key, [node for node, *_ in run])


def _name(source: SourceLine, scope: int | None) -> str:
    if _GRAD.search(source.text):
        return f"grad() line {source.line}"
    function = source.function
    says_nothing = not function or function.startswith(("<", "__")) or (function == "forward" and scope is not None)
    return f"line {source.line}" if says_nothing else f"{function}()"


def _own(graph: Graph, runs: list[_Run]) -> set[tuple[int | None, str, str]]:
    """The function that made what comes last in each module call, and those that made the outputs."""
    own = {run.scope: run[:3] for run in runs if run.scope is not None}.values()
    sources = (graph.nodes[root.node].source for root in graph.roots if root.node is not None)
    return {*own, *((None, source.file, _name(source, None)) for source in sources if source is not None)}
