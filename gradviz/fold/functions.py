"""Calls of functions as scopes: ops without a module of their own are grouped by what
made them first.

A loss, the right side of an ODE, a gradient of a gradient. A recorded line names the
innermost function only, not who called it. So a call is a run of ops that one function
made one after the other, and functions that made the outputs are left alone: they are
the script's, or the module's own forward.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

from gradviz.fold.updates import Updates
from gradviz.graph import Graph, Scope, SourceLine, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import ScopeTree
from gradviz.wording import line_text

LEAST_CALLS = 4
"""How often a function is called for its calls to be groups: of three, such as for
queries, keys and values, each is read.
"""
LEAST_OPS = 8
"""Ops that one call outside of all modules makes for it to be a group however seldom
the function is called, and ops that a line without a function of its own makes each
time.
"""
LEAST_GRAD = 4
"""Ops that backward made for one `autograd.grad(..., create_graph=True)` to be a group.
"""
_GRADIENT, _UPDATE = "grad() ", "update step "
"""How the names of what backward made, and of an inner update, begin."""
_GRAD = re.compile(r"\bgrad\(|\bbackward\(.*\bcreate_graph\b")
"""A line where backward makes ops. `loss = net(x).sum(); loss.backward()` is not one.
"""


class _Run(NamedTuple):
    """Ops that one function made one after the other, directly inside one module call
    (None: outside of all).

    `name` is `func()`, `grad() line 12` for what backward made there, `update step 1`
    with the parameters computed from that, or `line 12` where the function has no name.
    """

    scope: int | None
    file: str
    name: str
    nodes: list[int]
    calls: tuple[int, ...] = ()  # of modules, between these ops


def with_functions(graph: Graph) -> Graph:
    """The graph with a scope for each call of such a function, `func()`, behind the
    scopes that it has.

    >>> from gradviz.graph import Node, Root, SourceLine, TensorInfo
    >>> lines = [SourceLine("ode.py", 3, "func") if i % 2 else SourceLine("ode.py", 9, "main") for i in range(9)]
    >>> nodes = tuple(Node(i, "MulBackward0", (), i, source=line) for i, line in enumerate(lines))
    >>> graph = with_functions(Graph(nodes, roots=(Root(8, 0, "y", TensorInfo((), "float32", "cpu")),)))
    >>> [(scope.path, scope.call) for scope in graph.scopes], graph.nodes[3].scope
    ([('func()', 1), ('func()', 2), ('func()', 3), ('func()', 4)], 1)
    """
    if any(column(graph.nodes, "source")):
        runs = _whole(graph, _with_updates(graph, _runs(graph)))
    else:
        runs = []

    count, outermost = Counter(run[:3] for run in runs), _own(graph, runs)
    calls = [
        run
        for run in runs
        if _is_group(
            run,
            count[run[:3]],
            run[:3] in outermost,
        )
    ]
    if not calls:
        return graph

    scopes, nodes = list(graph.scopes), list(graph.nodes)
    number: Counter[str] = Counter()
    for run in calls:
        number[run.name] += 1
        for node in run.nodes:
            nodes[node] = nodes[node]._replace(scope=len(scopes))
        for call in run.calls:
            scopes[call] = scopes[call]._replace(parent=len(scopes))
        scopes.append(
            Scope(
                run.name,
                "",
                number[run.name],
                run.scope,
            )
        )

    return replace(graph, scopes=tuple(scopes), nodes=tuple(nodes))


def _is_group(run: _Run, calls: int, is_own: bool) -> bool:
    if run.name.startswith((_GRADIENT, _UPDATE)):
        return len(run.nodes) >= LEAST_GRAD
    if run.name.startswith("line "):
        return calls >= LEAST_CALLS and len(run.nodes) >= LEAST_OPS
    return not is_own and (
        calls >= LEAST_CALLS or (run.scope is None and len(run.nodes) >= LEAST_OPS)
    )


def _runs(graph: Graph) -> Iterator[_Run]:
    sources, scopes, sequences = (
        column(graph.nodes, name) for name in ("source", "scope", "sequence")
    )
    numbered = (
        (node, sources[node])
        for node in forward_order(graph)
        if sequences[node] is not None
    )
    located = (
        (node, source, scopes[node]) for node, source in numbered if source is not None
    )

    for key, run in groupby(
        located,
        key=lambda op: (
            op[2],
            op[1].file,
            _name(op[1], op[2]),
        ),
    ):
        yield _Run(*key, [node for node, *_ in run])


def _whole(
    graph: Graph,
    runs: Iterable[_Run],
) -> list[_Run]:
    """The runs, those of one call of a function with nothing but calls of modules
    between them as one: it made these calls.
    """
    tree, stretches = ScopeTree(graph), list[list[_Run]]()
    last: dict[int | None, list[_Run]] = {}  # the last stretch directly in each scope
    since: dict[int | None, dict[int, None]] = {}  # calls in each scope since then

    for run in runs:
        for inner, outer in pairwise((*tree.around(run.scope), None)):
            since.setdefault(outer, {})[inner or 0] = None
        piece = run._replace(calls=tuple(since.pop(run.scope, ())))
        before = last.get(run.scope)
        if before is not None and before[0][:3] == run[:3] and run.name.endswith("()"):
            before.append(piece)
        else:
            last[run.scope] = [piece]
            stretches.append(last[run.scope])

    return [call for stretch in stretches for call in _calls(graph, stretch)]


def _calls(
    graph: Graph,
    stretch: list[_Run],
) -> Iterator[_Run]:
    """Pieces of one function as its calls. The next call begins where the first line
    comes again after another one; where all is on that line, each piece is a call, for
    nothing tells a loop in the function from one around it.
    """
    if len(stretch) == 1:
        yield stretch[0]._replace(calls=())
        return

    first = before = _line(graph, stretch[0].nodes[0])
    calls: list[list[_Run]] = [[]]
    for piece in stretch:
        calls[-1].append(piece._replace(nodes=[]))
        for node in piece.nodes:
            line = _line(graph, node)
            if line == first and before != first:
                calls.append([piece._replace(nodes=[], calls=())])
            calls[-1][-1].nodes.append(node)
            before = line

    for pieces in calls:
        nodes = [node for piece in pieces for node in piece.nodes]
        if len({_line(graph, node) for node in nodes}) > 1:
            yield pieces[0]._replace(
                nodes=nodes,
                calls=tuple(call for piece in pieces[1:] for call in piece.calls),
            )
        else:
            yield from (piece._replace(calls=()) for piece in pieces if piece.nodes)


def _line(graph: Graph, node: int) -> int:
    source = graph.nodes[node].source
    return source.line if source is not None else 0


def _with_updates(
    graph: Graph,
    runs: Iterable[_Run],
) -> Iterator[_Run]:
    """The runs, with the ops that update parameters beside the gradient that they use."""
    updates = Updates(graph)
    gradient: _Run | None = None

    for run in runs:
        nodes = run.nodes
        if gradient is not None:
            step, count = updates.after(
                gradient.nodes, nodes if run.scope == gradient.scope else ()
            )
            name = f"{_UPDATE}{step}" if count else gradient.name
            yield gradient._replace(
                name=name,
                nodes=gradient.nodes + nodes[:count],
            )
            nodes = nodes[count:]
        gradient = run if run.name.startswith(_GRADIENT) else None
        updates.pass_by(nodes)
        if nodes and gradient is None:
            yield run._replace(nodes=nodes)

    if gradient is not None:
        yield gradient


def _name(source: SourceLine, scope: int | None) -> str:
    if _GRAD.search(source.text):
        return f"{_GRADIENT}{line_text(source.file, source.line)}"
    function = source.function
    says_nothing = (
        not function
        or function.startswith(("<", "__"))
        or (function == "forward" and scope is not None)
    )
    return line_text(source.file, source.line) if says_nothing else f"{function}()"


def _own(
    graph: Graph,
    runs: list[_Run],
) -> set[tuple[int | None, str, str]]:
    """The function that made what comes last in each module call, and those that made
    the outputs.
    """
    last_of_call = {
        run.scope: run[:3] for run in runs if run.scope is not None
    }.values()
    sources = (
        graph.nodes[root.node].source for root in graph.roots if root.node is not None
    )

    return {
        *last_of_call,
        *(
            (None, source.file, _name(source, None))
            for source in sources
            if source is not None
        ),
    }
