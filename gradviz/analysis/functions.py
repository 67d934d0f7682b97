"""Groups ops that have no module of their own by the function that made them: a loss, the right side of an ODE, one step of a loop.

A recorded line names the innermost function only, and not who called it. So a call is a run of ops that one function made one after
the other, and functions that made the outputs are left alone: they are the script's, or the module's own forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gradviz.analysis.held import forward_order
from gradviz.graph import Graph, Scope, column

LEAST_CALLS = 4
"""How often a function is called for its calls to be groups: of three, such as for queries, keys and values, each is read."""
LEAST_OPS = 8
"""Ops that one call outside of all modules makes for it to be a group however seldom the function is called."""


class _Run(NamedTuple):
    """Ops that one function made one after the other, directly inside one module call (None: outside of all)."""

    scope: int | None
    file: str
    function: str
    nodes: list[int]


def with_functions(graph: Graph) -> Graph:
    """The graph with a scope for each call of such a function, `func()`, behind the scopes that it has.

    >>> from gradviz.graph import Node, Root, SourceLine, TensorInfo
    >>> lines = [SourceLine("ode.py", 3, "func") if i % 2 else SourceLine("ode.py", 9, "main") for i in range(9)]
    >>> nodes = tuple(Node(i, "MulBackward0", (), i, source=line) for i, line in enumerate(lines))
    >>> found = with_functions(Graph(nodes, roots=(Root(8, 0, "y", TensorInfo((), "float32", "cpu")),)))
    >>> [(scope.path, scope.call) for scope in found.scopes], found.nodes[3].scope
    ([('func()', 1), ('func()', 2), ('func()', 3), ('func()', 4)], 1)
    """
    calls = _calls(graph)
    if not calls:
        return graph
    scopes, nodes = list(graph.scopes), list(graph.nodes)
    count: dict[str, int] = {}
    for run in calls:
        path = f"{run.function}()"
        count[path] = count.get(path, 0) + 1
        for node in run.nodes:
            nodes[node] = nodes[node]._replace(scope=len(scopes))
        scopes.append(Scope(path, "", count[path], run.scope))
    return replace(graph, scopes=tuple(scopes), nodes=tuple(nodes))


def _calls(graph: Graph) -> list[_Run]:
    """The runs that are worth a group, in the order they ran."""
    if not any(source is not None for source in column(graph.nodes, "source")):
        return []
    runs = [run for run in _runs(graph) if not _is_anonymous(run)]
    own = _own_functions(graph)
    count: dict[tuple[int | None, str, str], int] = {}
    for run in runs:
        count[run[:3]] = count.get(run[:3], 0) + 1
    return [
        run
        for run in runs
        if run[:3] not in own
        if count[run[:3]] >= LEAST_CALLS or (run.scope is None and len(run.nodes) >= LEAST_OPS)
    ]


def _runs(graph: Graph) -> Iterator[_Run]:
    sources, scopes, sequences = (column(graph.nodes, name) for name in ("source", "scope", "sequence"))
    run: _Run | None = None
    for node in forward_order(graph):
        source = sources[node]
        if sequences[node] is None or source is None:
            continue
        if run is None or run[:3] != (scopes[node], source.file, source.function):
            if run is not None:
                yield run
            run = _Run(scopes[node], source.file, source.function, [])
        run.nodes.append(node)
    if run is not None:
        yield run


def _own_functions(graph: Graph) -> set[tuple[int | None, str, str]]:
    """The function that made what comes last in each module call, and those that made the outputs."""
    last: dict[int, tuple[int | None, str, str]] = {}
    found: set[tuple[int | None, str, str]] = set()
    for run in _runs(graph):
        if run.scope is not None:
            last[run.scope] = run[:3]
    for root in graph.roots:
        source = graph.nodes[root.node].source if root.node is not None else None
        if source is not None:
            found.add((None, source.file, source.function))
    return found.union(last.values())


def _is_anonymous(run: _Run) -> bool:
    """Whether the function's name says nothing of what it does, or only what the module around says."""
    name = run.function
    return not name or name.startswith(("<", "__")) or (name == "forward" and run.scope is not None)
