"""The program as scopes: calls of functions, loops and their turns, statements and calls
of torch that a reader wants to see as boxes.

The graph says which there were and what each made; here is chosen which say something.
Nothing is invented.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gradviz.fold.order import is_view
from gradviz.graph import Construct, Graph, Scope
from gradviz.graph.origins import ScopeTree, around
from gradviz.graph.written import code_of
from gradviz.wording import line_text, place_text

FEW = 16
"""Nodes of a graph whose loops and statements are no boxes: it is about ops."""
LEAST_CALLS = 4
"""How often a function is called for its calls to be groups: of three, such as for
queries, keys and values, each is read.
"""
LEAST_OPS = 8
"""Ops of a call that is a group though the function is called seldom: in a module more
than once.
"""
LEAST_BESIDE = 3
"""Ops that the call of a function has beside the largest one in it."""
LEAST = 4
"""Ops of a loop, or of what backward made for one `autograd.grad(...,
create_graph=True)`.
"""


def with_program(graph: Graph) -> tuple[Graph, dict[int, Construct]]:
    """The graph with a scope for each such construct, behind the scopes that it has, and
    the constructs by scope.

    >>> from gradviz.graph import Node, SourceLine
    >>> nodes = tuple(Node(i, "MulBackward0", (), i) for i in range(8))
    >>> calls = tuple(Construct("function", "func", SourceLine("ode.py", 3), nodes=(i, i + 1)) for i in (0, 2, 4, 6))
    >>> graph, _ = with_program(Graph(nodes, program=calls))
    >>> [(scope.path, scope.call) for scope in graph.scopes], graph.nodes[3].scope
    ([('func()', 1), ('func()', 2), ('func()', 3), ('func()', 4)], 1)
    """
    chosen = _Choice(graph).chosen if graph.program else set()
    if not chosen:
        return graph, {}

    scopes, nodes = list(graph.scopes), list(graph.nodes)
    constructs: dict[int, Construct] = {}
    homes: list[int | None] = []  # the scope of what each construct makes
    names, number = _names(graph), Counter[tuple[str, int | None]]()
    for i, construct in enumerate(graph.program):
        home = construct.scope if construct.parent is None else homes[construct.parent]
        if i in chosen:
            # turns and statements are told by the loop around them
            is_call = construct.kind in ("function", "gradient")
            key = names[i], None if is_call else home
            number[key] += 1
            call = number[key] if is_call else 1
            constructs[len(scopes)] = construct
            turns = construct.turn if construct.kind == "loop" else 0
            scopes.append(
                Scope(names[i], "", call, home, kind=construct.kind, turns=turns)
            )
            home = len(scopes) - 1

        homes.append(home)
        for node in construct.nodes:
            nodes[node] = nodes[node]._replace(scope=home)
        for scope in construct.scopes:
            scopes[scope] = scopes[scope]._replace(parent=home)

    return replace(graph, scopes=tuple(scopes), nodes=tuple(nodes)), constructs


def names_of(scope: Scope, construct: Construct | None) -> list[str]:
    """What a reader may call a scope: its path; the line of a loop or a statement."""
    if construct is None or construct.source is None:
        return [scope.path]
    name = os.path.basename(construct.source.file)
    return [scope.path, place_text(name, construct.source.line)]


def names_in(named: Graph, constructs: Mapping[int, Construct]) -> list[list[str]]:
    """The names of every scope of a graph with its program."""
    scopes = enumerate(named.scopes)
    return [names_of(scope, constructs.get(i)) for i, scope in scopes]


class _Choice:
    """Which constructs are groups, the inner ones decided first."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._program = graph, graph.program
        self._members = ScopeTree(graph).members
        self._outputs = _around_outputs(graph)
        self._count = Counter(
            (call.scope, call.source)
            for call in graph.program
            if call.kind == "function"
        )
        self._is_few = len(graph.nodes) <= FEW
        self._inside: dict[int, list[int]] = {}  # constructs in each
        for i, construct in enumerate(graph.program):
            if construct.parent is not None:
                self._inside.setdefault(construct.parent, []).append(i)

        count = len(graph.program)
        self._ops = [0] * count  # all that each made, by what it called, too
        self._work = [0] * count  # the same without views
        self._largest = [0] * count  # ops of the largest call of a function in it
        self._calls = [False] * count  # whether it runs functions, or modules
        self.chosen: set[int] = set()
        for i in reversed(range(count)):
            self._add_up(i)
            if self._is_group(i):
                self.chosen.add(i)
                if self._program[i].kind in ("function", "gradient"):
                    self._largest[i] = self._ops[i]

        self._drop_turns()

    def _add_up(self, i: int) -> None:
        construct, inside = self._program[i], self._inside.get(i, ())
        called = [node for scope in construct.scopes for node in self._members[scope]]
        ops = self._graph.ops
        self._ops[i] = len(construct.nodes) + len(called)
        self._work[i] = sum(
            not is_view(ops[node]) for node in (*construct.nodes, *called)
        )
        self._calls[i] = bool(construct.scopes)
        for inner in inside:
            self._ops[i] += self._ops[inner]
            self._work[i] += self._work[inner]
            self._largest[i] = max(self._largest[i], self._largest[inner])
            is_function = self._program[inner].kind in ("function", "gradient")
            self._calls[i] |= is_function or self._calls[inner]

    def _is_group(self, i: int) -> bool:
        construct = self._program[i]
        if construct.kind == "function":
            return self._is_function(i)
        if construct.kind == "gradient":
            return self._ops[i] >= LEAST
        if construct.kind == "call":
            return self._work[i] > 1
        if self._is_few:
            return False
        if construct.kind == "loop":
            return self._is_loop(i)
        if construct.kind == "statement":
            return self._is_statement(i)
        return True

    def _is_function(self, i: int) -> bool:
        """Whether it is called often, or long.

        What is around an output is the script's own work, and what does little but call
        another function says no more than that.
        """
        call = self._program[i]
        count = self._count[call.scope, call.source]
        if self._largest[i] and self._ops[i] - self._largest[i] < LEAST_BESIDE:
            return False
        if count >= LEAST_CALLS:
            return True
        is_one = call.scope is not None and count == 1
        return self._ops[i] >= LEAST_OPS and not is_one and i not in self._outputs

    def _is_loop(self, i: int) -> bool:
        """Whether its turns are more than one module call each, and it is not all that
        there is. Where no turns are known, it makes more than what its modules do.
        """
        if self._ops[i] < LEAST or self._ops[i] == self._ops_in_all:
            return False
        inside = self._inside.get(i, [])
        turns = [turn for turn in inside if self._program[turn].kind == "turn"]
        if not turns:
            return bool(inside or self._program[i].nodes)
        return any(not self._is_one_module(turn) for turn in turns)

    @property
    def _ops_in_all(self) -> int:
        return len(self._graph.nodes) - len(self._graph.leaves)

    def _is_one_module(self, turn: int) -> bool:
        construct, inside = self._program[turn], self._inside.get(turn, [])
        while not construct.nodes and not construct.scopes and len(inside) == 1:
            construct, inside = (
                self._program[inside[0]],
                self._inside.get(inside[0], []),
            )
        return not construct.nodes and not inside and len(construct.scopes) == 1

    def _is_statement(self, i: int) -> bool:
        """Whether it makes several ops, and not by calls that say more."""
        groups = list(self._groups_in(i))
        kinds = {self._program[inner].kind for inner in groups}
        if self._calls[i] or kinds - {"call"}:
            return False
        return self._work[i] - sum(self._work[inner] - 1 for inner in groups) > 1

    def _groups_in(self, i: int) -> Iterator[int]:
        """The outermost groups in a construct; turns of no loop are none."""
        for inner in self._inside.get(i, ()):
            if inner in self.chosen and self._program[inner].kind != "turn":
                yield inner
            else:
                yield from self._groups_in(inner)

    def _drop_turns(self) -> None:
        """Turns of what is no group are none."""
        for i, construct in enumerate(self._program):
            if construct.kind == "turn" and construct.parent not in self.chosen:
                self.chosen.discard(i)


def _around_outputs(graph: Graph) -> set[int]:
    """The constructs that made an output, themselves or by what they called."""
    program, scopes = graph.program, graph.scopes
    maker = {node: i for i, one in enumerate(program) for node in one.nodes}
    caller = {scope: i for i, one in enumerate(program) for scope in one.scopes}
    found: set[int] = set()
    for root in graph.roots:
        if root.node is None:
            continue
        found.update(around(program, maker.get(root.node)))
        for scope in around(scopes, graph.nodes[root.node].scope):
            found.update(around(program, caller.get(scope)))

    return found


def _names(graph: Graph) -> list[str]:
    """`func()`, with its line where two functions have that name; `grad() line 12`; what
    a statement assigns, else its code; a loop by its head.
    """
    sources = {
        (call.text, call.source) for call in graph.program if call.kind == "function"
    }
    same = Counter(text for text, _ in sources)
    names = []
    for construct in graph.program:
        text, source = construct.text or code_of(construct), construct.source
        is_function = construct.kind == "function"
        if is_function and same[text] == 1:
            text = f"{text}()"
        elif is_function or construct.kind == "gradient":
            line = line_text(source.file, source.line) if source is not None else ""
            text = f"{text}() {line}".strip()
        names.append(text)
    return names
