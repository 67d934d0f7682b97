"""The program as scopes: calls of functions, loops and their turns, statements and calls
of torch that a reader wants to see as boxes.

The graph says which there were and what each made; here is chosen which say something.
Nothing is invented.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from gradviz.fold.order import is_view
from gradviz.graph import Construct, Graph, Scope
from gradviz.graph.origins import ScopeTree, around
from gradviz.graph.walks import makers, spread, users
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
MOST_READ = 1_000
"""Nodes of a statement of which it is asked what depends on what."""
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
            if nodes[node].scope != home:
                nodes[node] = nodes[node]._replace(scope=home)
        for scope in construct.scopes:
            scopes[scope] = scopes[scope]._replace(parent=home)

    return graph.with_scopes(tuple(scopes), tuple(nodes)), constructs


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


class _Piece:
    """A construct, the ones right inside it, and how much all of them made, by what they
    called, too.
    """

    def __init__(self, number: int, construct: Construct) -> None:
        self.number, self.construct, self.kind = number, construct, construct.kind
        self.inside: list[_Piece] = []
        self.is_call = self.kind in ("function", "gradient")
        self.calls = bool(construct.scopes)  # whether it runs functions, or modules
        self.ops = 0
        self.work = 0  # ops that are no views
        self.largest = 0  # ops of the largest call of a function in it
        self.is_group = False

    def add_up(self) -> None:
        """Count what is inside it, which is complete."""
        for inner in self.inside:
            self.ops += inner.ops
            self.work += inner.work
            self.largest = max(self.largest, inner.largest)
            self.calls |= inner.is_call or inner.calls

    def nodes(self) -> Iterator[int]:
        """What it made, but for modules."""
        yield from self.construct.nodes
        for inner in self.inside:
            yield from inner.nodes()

    def groups_in(self) -> Iterator[_Piece]:
        """The outermost groups in it; turns of no loop are none."""
        for inner in self.inside:
            if inner.is_group and inner.kind != "turn":
                yield inner
            else:
                yield from inner.groups_in()

    @property
    def is_one_module(self) -> bool:
        """Whether all that a turn does is to call one module."""
        piece, own = self, self.construct
        while len(piece.inside) == 1 and not own.nodes and not own.scopes:
            piece = piece.inside[0]
            own = piece.construct
        return not own.nodes and not piece.inside and len(own.scopes) == 1


Products = list[list[int]]
"""The nodes that each construct of a program made itself and by modules."""


def _products(graph: Graph) -> Products:
    members = ScopeTree(graph).members
    called = (map(members.__getitem__, one.scopes) for one in graph.program)
    return [
        [*one.nodes, *chain.from_iterable(calls)]
        for one, calls in zip(graph.program, called)
    ]


def _pieces(graph: Graph, products: Products) -> list[_Piece]:
    """Those of a graph, each with how much it made."""
    works = [not is_view(op) for op in graph.ops]
    pieces = [_Piece(i, construct) for i, construct in enumerate(graph.program)]
    for piece, nodes in zip(pieces, products):
        parent = piece.construct.parent
        if parent is not None:
            pieces[parent].inside.append(piece)
        piece.ops = len(nodes)
        piece.work = sum([works[node] for node in nodes])
    return pieces


class _Choice:
    """Which constructs are groups, the inner ones decided first."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._outputs = graph, _around_outputs(graph)
        functions = (call for call in graph.program if call.kind == "function")
        self._count = Counter((call.scope, call.source) for call in functions)
        products = _products(graph)
        pieces = _pieces(graph, products)
        self._mirrored = _mirrored(graph, products)
        self._data: dict[int, list[int]] = {}  # what each node takes of it
        for i, data in enumerate(graph.data):
            for node in data.nodes:
                self._data.setdefault(node, []).append(~i)
        for piece in reversed(pieces):
            piece.add_up()
            piece.is_group = self._is_group(piece)
            if piece.is_group and piece.is_call:
                piece.largest = piece.ops

        for piece in pieces:  # turns of what is no group are none
            for inner in () if piece.is_group else piece.inside:
                inner.is_group &= inner.kind != "turn"
        self.chosen = {piece.number for piece in pieces if piece.is_group}

    def _is_group(self, piece: _Piece) -> bool:
        if piece.kind == "function":
            return self._is_function(piece)
        if piece.kind == "gradient":
            return piece.ops >= LEAST
        if piece.kind == "call":
            return piece.work > 1
        if len(self._graph.nodes) <= FEW:
            return False
        if piece.kind == "loop":
            return self._is_loop(piece)
        if piece.kind == "statement":
            return self._is_statement(piece)
        return True

    def _is_function(self, piece: _Piece) -> bool:
        """Whether it is called often, or long.

        What is around an output is the script's own work, and what does little but call
        another function says no more than that.
        """
        call = piece.construct
        count = self._count[call.scope, call.source]
        if piece.largest and piece.ops - piece.largest < LEAST_BESIDE:
            return False
        if count >= LEAST_CALLS:
            return True
        is_one = call.scope is not None and count == 1
        is_long = piece.ops >= LEAST_OPS and not is_one
        return is_long and piece.number not in self._outputs

    def _is_loop(self, piece: _Piece) -> bool:
        """Whether its turns are more than one module call each. One turn, or turns that
        nobody knows, say nothing where they are all that there is; the latter make more
        than what their modules do.
        """
        graph = self._graph
        if piece.number in self._mirrored or piece.ops < LEAST:
            return False
        turns = [turn for turn in piece.inside if turn.kind == "turn"]
        if len(turns) < 2 and piece.ops == len(graph.nodes) - len(graph.leaves):
            return False
        if not turns:
            return bool(piece.inside or piece.construct.nodes)
        return not all(turn.is_one_module for turn in turns)

    def _is_statement(self, piece: _Piece) -> bool:
        """Whether it makes several ops, and not by calls that say more."""
        groups = list(piece.groups_in())
        if piece.calls or any(inner.kind != "call" for inner in groups):
            return False
        work = piece.work - sum(inner.work - 1 for inner in groups)
        return work > 1 and self._is_one_result(set(piece.nodes()))

    def _is_one_result(self, nodes: set[int]) -> bool:
        """Whether all that leaves some nodes depends on all that enters them."""
        graph = self._graph
        if len(nodes) > MOST_READ:
            return True

        def inner(node: int) -> set[int]:
            return nodes.intersection(makers(graph, node))

        def is_result(node: int) -> bool:
            return node in graph.roots_of or not nodes.issuperset(users(graph, node))

        def entering(last: int) -> set[int]:
            found = set[int]()
            for node in spread([last], inner):
                found.update(self._data.get(node, ()), makers(graph, node))
            return found - nodes

        results = list(filter(is_result, nodes))
        if len(results) < 2:
            return True  # it depends on whatever leads to it
        first = entering(results[0])
        return all(entering(last) == first for last in results[1:])


class _Outermost:
    """The outermost loops around all that is made, with their turns: `places` by
    construct, `turns` by node. `called`: the modules that each of them calls.
    """

    def __init__(self, graph: Graph, products: Products) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self.turns: dict[int, tuple[int, int]] = {}
        self.called: dict[int, list[str]] = {}
        for i, construct in enumerate(graph.program):
            parent = construct.parent
            place = self.places.get(parent) if parent is not None else None
            if place is None and construct.kind == "loop":
                place = i, 0
            if place is not None and construct.kind == "turn" and parent == place[0]:
                place = place[0], construct.turn
            if place is not None:
                self.places[i] = place
                paths = [graph.scopes[scope].path for scope in construct.scopes]
                self.called.setdefault(place[0], []).extend(paths)
                for node in products[i]:
                    self.turns.setdefault(node, place)


def _mirrored(graph: Graph, products: Products) -> set[int]:
    """Loops over modules that take up last what another one made first, as the decoder
    of a U-Net does, and that other one, with all loops in them: without their frames a
    reader sees the shape.
    """
    outermost = _Outermost(graph, products)
    turns, called = outermost.turns, outermost.called
    if len(called) < 2:
        return set()
    skips: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for node, (user, later) in turns.items():
        for edge in graph.inputs(node):
            maker, earlier = turns.get(edge.producer, (user, 0))
            if maker != user:
                skips.setdefault((maker, user), set()).add((earlier, -later))

    found: set[int] = set()
    for ends, pairs in skips.items():
        order = [later for _, later in sorted(pairs)]
        is_once = all(len(set(called[end])) == len(called[end]) > 1 for end in ends)
        homes = {(graph.program[end].scope, graph.program[end].parent) for end in ends}
        if is_once and len(homes) == 1 < len(set(order)) and order == sorted(order):
            found.update(ends)
    return {i for i, (loop, _) in outermost.places.items() if loop in found}


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
