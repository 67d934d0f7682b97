"""Calls of functions as scopes: a loss, the right side of an ODE, a gradient of a
gradient.

The graph says which calls were seen and what each made. Here is chosen which of them a
reader wants to see as a box.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gradviz.graph import Graph, Scope
from gradviz.graph.origins import ScopeTree, around
from gradviz.wording import line_text

LEAST_CALLS = 4
"""How often a function is called for its calls to be groups: of three, such as for
queries, keys and values, each is read.
"""
LEAST_OPS = 8
"""Ops of a call outside of all modules that is a group however seldom the function is
called.
"""
LEAST_BESIDE = 3
"""Ops that a group has beside the largest one in it."""
LEAST_GRAD = 4
"""Ops that backward made for one `autograd.grad(..., create_graph=True)` to be a group.
"""


def with_functions(graph: Graph) -> Graph:
    """The graph with a scope for each call of such a function, `func()`, behind the
    scopes that it has.

    >>> from gradviz.graph import FunctionCall, Node, SourceLine
    >>> nodes = tuple(Node(i, "MulBackward0", (), i) for i in range(8))
    >>> calls = tuple(FunctionCall(SourceLine("ode.py", 3, "func"), None, None, (i, i + 1)) for i in (0, 2, 4, 6))
    >>> graph = with_functions(Graph(nodes, functions=calls))
    >>> [(scope.path, scope.call) for scope in graph.scopes], graph.nodes[3].scope
    ([('func()', 1), ('func()', 2), ('func()', 3), ('func()', 4)], 1)
    """
    chosen = _chosen(graph)
    if not chosen:
        return graph

    scopes, nodes = list(graph.scopes), list(graph.nodes)
    homes: list[int | None] = []  # the scope of what each call makes
    names, number = _names(graph), Counter[str]()
    for i, call in enumerate(graph.functions):
        home = call.scope if call.parent is None else homes[call.parent]
        if i in chosen:
            number[names[i]] += 1
            scopes.append(Scope(names[i], "", number[names[i]], home))
            home = len(scopes) - 1

        homes.append(home)
        for node in call.nodes:
            nodes[node] = nodes[node]._replace(scope=home)
        for scope in call.scopes:
            scopes[scope] = scopes[scope]._replace(parent=home)

    return replace(graph, scopes=tuple(scopes), nodes=tuple(nodes))


def _chosen(graph: Graph) -> set[int]:
    """The calls that are groups: of functions that are called often, and long ones.

    What is around an output is the script's own work, and what does little but call
    another function says no more than that.
    """
    functions = graph.functions
    if not functions:
        return set()

    members = ScopeTree(graph).members
    outputs = _around_outputs(graph)
    count = Counter((call.scope, call.source) for call in functions)
    chosen: set[int] = set()
    inner = [0] * len(functions)  # ops of all that each called
    largest = [0] * len(functions)  # ops of the largest group in it

    # a caller comes before what it calls: from the end, inner calls are decided first
    for i, call in reversed(list(enumerate(functions))):
        called = sum(len(members[scope]) for scope in call.scopes)
        ops = len(call.nodes) + called + inner[i]

        if call.gradient:
            is_group = ops >= LEAST_GRAD
        elif largest[i] and ops - largest[i] < LEAST_BESIDE:
            is_group = False
        elif count[call.scope, call.source] >= LEAST_CALLS:
            is_group = True
        else:
            is_group = call.scope is None and ops >= LEAST_OPS and i not in outputs

        if is_group:
            chosen.add(i)
            largest[i] = ops
        if call.parent is not None:
            inner[call.parent] += ops
            largest[call.parent] = max(largest[i], largest[call.parent])

    return chosen


def _around_outputs(graph: Graph) -> set[int]:
    """The calls that made an output, themselves or by what they called."""
    functions, scopes = graph.functions, graph.scopes
    maker = {node: i for i, call in enumerate(functions) for node in call.nodes}
    caller = {scope: i for i, call in enumerate(functions) for scope in call.scopes}
    found: set[int] = set()
    for root in graph.roots:
        if root.node is None:
            continue
        found.update(around(functions, maker.get(root.node)))
        for scope in around(scopes, graph.nodes[root.node].scope):
            found.update(around(functions, caller.get(scope)))

    return found


def _names(graph: Graph) -> list[str]:
    """`func()`, with its line where two functions have that name; `grad() line 12`."""
    sources = {call.source for call in graph.functions}
    same = Counter(source.function for source in sources)
    names = []
    for source, *_, is_gradient in graph.functions:
        name = "grad" if is_gradient else source.function
        line = line_text(source.file, source.line)
        is_alone = not is_gradient and same[source.function] == 1
        names.append(f"{name}()" if is_alone else f"{name}() {line}")
    return names
