"""Modules behind a graph: the tree of their calls, as scopes tell it, and who owns which leaf where no call was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from gradviz.graph.amounts import forward_order
from gradviz.graph.model import Graph, Scope, column


class Registered(NamedTuple):
    """One module that can be called. Modules are numbered so that each comes before those inside it, which follow at once."""

    path: str
    type: str
    base: str  # the class of torch.nn whose `forward` it runs: "Sequential"; "" when it has a forward of its own
    parent: int | None
    parameters: int | None = None
    takes_labels: bool = False  # whether its forward is given what to compute a loss with
    frozen: bool = False  # whether it holds, itself, parameters that need no gradient


class Ownership(NamedTuple):
    """The modules of a model, and by leaf of a graph (id of the AccumulateGrad node) those that hold its parameter."""

    modules: tuple[Registered, ...]
    owners: Mapping[int, tuple[int, ...]]


class _Nested(Protocol):
    @property
    def parent(self) -> int | None: ...


def around(records: Sequence[_Nested], at: int | None) -> Iterator[int]:
    """A record, by its index, and all that it is inside of, inner first."""
    while at is not None:
        yield at
        at = records[at].parent


def common(records: Sequence[_Nested], some: Iterable[int]) -> int | None:
    """The innermost record that all of these are, or are inside of."""
    first, *rest = (list(around(records, at)) for at in sorted(some))
    others = [set(outer) for outer in rest]
    return next((at for at in first if all(at in outer for outer in others)), None)


# -- the tree of calls -------------------------------------------------------------------------------------------------


class ScopeTree:
    """Reads `Graph.scopes` as a tree. A scope is one call of one module, given by its id."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.scopes: tuple[Scope, ...] = graph.scopes

    @cached_property
    def children(self) -> list[list[int]]:
        """Ids of the calls made directly inside each call."""
        children: list[list[int]] = [[] for _ in self.scopes]
        for i, scope in enumerate(self.scopes):
            if scope.parent is not None:
                children[scope.parent].append(i)
        return children

    @cached_property
    def outermost(self) -> list[int]:
        """Ids of the calls that no other call is around."""
        return [i for i, scope in enumerate(self.scopes) if scope.parent is None]

    @cached_property
    def top_down(self) -> list[int]:
        """All scopes, every one after the scope around it."""
        order = list(self.outermost)
        for scope in order:  # grows while it is read
            order.extend(self.children[scope])
        return order

    @cached_property
    def depth(self) -> list[int]:
        """Nesting depth: 1 for an outermost call."""
        depths = [1] * len(self.scopes)
        for i in self.top_down:
            parent = self.scopes[i].parent
            if parent is not None:
                depths[i] = depths[parent] + 1
        return depths

    @cached_property
    def members(self) -> list[list[int]]:
        """Ids of the nodes inside each call, inner calls included, in forward order; AccumulateGrad nodes left out."""
        nodes: list[list[int]] = [[] for _ in self.scopes]
        scopes, sequences = (column(self._graph.nodes, name) for name in ("scope", "sequence"))
        for node in forward_order(self._graph):
            if sequences[node] is not None:
                for scope in self.around(scopes[node]):
                    nodes[scope].append(node)
        return nodes

    @cached_property
    def place(self) -> list[int]:
        """Where each call begins among all nodes in forward order; calls without nodes come last."""
        return [self.position[inside[0]] if inside else len(self.position) for inside in self.members]

    @cached_property
    def position(self) -> list[int]:
        """Where each node stands in forward order."""
        position = [0] * len(self._graph.nodes)
        for i, node in enumerate(forward_order(self._graph)):
            position[node] = i
        return position

    def around(self, scope: int | None) -> Iterator[int]:
        """The scope itself and every scope around it, inner first."""
        return around(self.scopes, scope)

    def common(self, scopes: set[int | None]) -> int | None:
        """The innermost scope that contains all of these; None stands for outside every module."""
        known = [scope for scope in scopes if scope is not None]
        return common(self.scopes, known) if known and len(known) == len(scopes) else None

    def named(self, path: str) -> list[int]:
        """All calls of the module at `path`."""
        return [i for i, scope in enumerate(self.scopes) if scope.path == path]

    def relative(self, scope: int | None, inside: int) -> str:
        """Path of a scope relative to another that contains it: "" for itself."""
        path, prefix = self.scopes[scope].path if scope is not None else "", self.scopes[inside].path
        return path.removeprefix(prefix)
