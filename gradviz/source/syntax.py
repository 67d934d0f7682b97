"""The syntax of one function: what stands around an expression, where its value goes,
and what may run after what. Reads syntax only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

Span = tuple[int, int, int, int]
"""First and last line, first and last column in bytes, as Python counts them."""
Block = tuple[ast.AST, str]
"""A block of statements: what has it, and in which field."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_JUMPS = (ast.Continue, ast.Break, ast.Return, ast.Raise)
LONGEST = 40
"""Letters of a literal, or of a name for a statement, in a title."""


class Statement(NamedTuple):
    """What a statement assigns, "" where it is no more than its code, and the code that
    computes it. Of `a, b = f(x), g(y)` each of the two counts as one.
    """

    node: ast.AST
    name: str
    code: str


class _Parent(NamedTuple):
    node: ast.AST
    field: str
    place: int  # in the field, where that is a list


class FunctionSyntax:
    """The syntax of a function, or of a file outside of its functions; comprehensions
    and lambdas are a part of what they stand in.
    """

    def __init__(self, root: ast.AST, text_of: Callable[[ast.AST], str]) -> None:
        self.root, self.text_of = root, text_of
        self.parents: dict[ast.AST, _Parent] = {}
        self.order: dict[ast.AST, int] = {}
        self._nodes: dict[Span, ast.AST] = {}
        self._by_line: dict[int, ast.AST | None] = {}
        self._jumps: dict[ast.AST, int] = {}
        self._blocks: dict[ast.AST, list[Block]] = {}
        self._read()

    def node_at(self, span: Span) -> ast.AST | None:
        """The innermost expression or statement of a span."""
        return self._nodes.get(span)

    def statement_at(self, line: int) -> ast.AST | None:
        """The only simple statement that goes over a line."""
        return self._by_line.get(line)

    def _read(self) -> None:
        """Number all parts as Python computes them: operands before what uses them."""
        waiting: list[tuple[ast.AST, bool]] = [(self.root, False)]
        while waiting:
            node, is_done = waiting.pop()
            if is_done:
                self.order[node] = len(self.order)
                self._add(node)
                continue
            waiting.append((node, True))
            is_inner = isinstance(node, (*FUNCTIONS, ast.ClassDef))
            if is_inner and node is not self.root:
                continue
            children = list(_in_order(node))
            for child, field, place in children:
                self.parents[child] = _Parent(node, field, place)
            waiting += [(child, False) for child, *_ in reversed(children)]

    def _add(self, node: ast.AST) -> None:
        if isinstance(node, _JUMPS):
            self._add_jump(node)
        if isinstance(node, (ast.expr, ast.stmt)):
            for span in spans_of(node):
                self._nodes.setdefault(span, node)
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                # of two statements on one line, neither is certain
                self._by_line[line] = None if line in self._by_line else node

    def _add_jump(self, jump: ast.AST) -> None:
        """Note where the loops that a jump leaves, or goes round, are left first."""
        for parent, field, _ in self._above(jump):
            if isinstance(parent, LOOPS) and field == "body":
                self._jumps.setdefault(parent, self.order[jump])
                if isinstance(jump, (ast.Continue, ast.Break)):
                    return

    def outward(self, node: ast.AST) -> Iterator[_Parent]:
        """What a node stands in, inner first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent.node)

    def blocks(self, node: ast.AST) -> list[Block]:
        """The blocks of statements around a node, the outermost first."""
        if node not in self._blocks:
            outward = [(parent, field) for parent, field, _ in self.outward(node)]
            blocks = [block for block in reversed(outward) if _is_block(*block)]
            self._blocks[node] = blocks
        return self._blocks[node]

    def _above(self, node: ast.AST) -> Iterator[_Parent]:
        """The same up to the end of its code object."""
        for parent in self.outward(node):
            yield parent
            if isinstance(parent.node, ast.Lambda):
                return

    # -- what stands around --------------------------------------------------------

    def around(
        self, node: ast.AST, end: type[ast.AST] = ast.Lambda
    ) -> list[ast.AST | Statement]:
        """The loops and the statement around a node, the outermost first, within the
        innermost node of a kind that is a function of its own.
        """
        found: list[ast.AST | Statement] = []
        outside: ast.AST | None = None
        path = [node]
        if isinstance(node, ast.stmt):
            found += self._statement(node, "", [])
        for parent, field, _ in self._above(node):
            if isinstance(parent, ast.comprehension) and field == "iter":
                # the first one to go through is computed before the comprehension runs
                if self.parents[parent].place == 0:
                    outside = self.parents[parent].node
            elif isinstance(parent, LOOPS) and field in ("body", "test"):
                found.append(parent)
            elif isinstance(parent, COMPREHENSIONS) and parent is not outside:
                found.append(parent)
                if isinstance(parent, end):
                    break
            elif isinstance(parent, ast.stmt):
                found += self._statement(parent, field, path)
            path.append(parent)
        return found[::-1]

    def _statement(
        self, node: ast.stmt, field: str, path: Sequence[ast.AST]
    ) -> list[Statement]:
        """The statement, or the one of its values that a path from inside leads to."""
        statement = self._statements(node) if field not in ("iter", "test") else None
        if statement is None:
            return []
        value = getattr(node, "value", None)
        if len(path) < 2 or path[-1] is not value:
            return [statement]
        return [self._element(statement, value, path[-2]) or statement]

    def _element(
        self, statement: Statement, value: ast.AST, element: ast.AST
    ) -> Statement | None:
        """One of several values, each with a name of its own, or none."""
        node, place, text = statement.node, self.parents[element].place, self.text_of
        if not isinstance(value, (ast.Tuple, ast.Dict)):
            return None
        if isinstance(node, ast.Return):
            return Statement(element, "", text(element))
        if not isinstance(node, ast.Assign) or len(node.targets) > 1:
            return None
        if isinstance(value, ast.Dict):
            key = value.keys[place]
            name = f"{statement.name}[{text(key)}]" if key is not None else ""
            return Statement(element, name, text(element))
        targets = getattr(node.targets[0], "elts", ())
        plain = [one for one in targets if not isinstance(one, ast.Starred)]
        if len(plain) != len(value.elts):
            return None
        return Statement(element, text(plain[place]), text(element))

    def _statements(self, node: ast.stmt) -> Statement | None:
        text = self.text_of
        if isinstance(node, ast.Assign):
            names = " = ".join(text(target) for target in node.targets)
            return Statement(node, names, text(node.value))
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return Statement(node, text(node.target), text(node.value))
        if isinstance(node, ast.AugAssign):
            sign = _SIGNS.get(type(node.op), "")
            return Statement(node, text(node.target), f"{sign}= {text(node.value)}")
        if isinstance(node, ast.Return) and node.value is not None:
            return Statement(node, "", text(node.value))
        return self._evaluated(node) if isinstance(node, ast.Expr) else None

    def _evaluated(self, node: ast.Expr) -> Statement:
        text, value = self.text_of, node.value
        if isinstance(value, ast.Yield) and value.value is not None:
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr in _ADDING:
                inside = ", ".join(map(text, value.args))
                return Statement(node, text(value.func.value), inside)
            if value.func.attr == "backward" and not value.args:
                value = value.func.value  # what is computed
        return Statement(node, "", text(value))

    def called(self, node: ast.AST) -> str:
        """What is called at an expression, as the code has it; "" for `zip(x, y)`, which
        only goes over what it is given.
        """
        if isinstance(node, ast.Call):
            called = node.func
            name = getattr(called, "id", "")
            return getattr(called, "attr", "") or ("" if name in _ITERATES else name)
        if isinstance(node, ast.Attribute):
            return node.attr
        if isinstance(node, ast.Subscript):
            inside = self.text_of(node.slice)
            # a tuple in parentheses is the same without
            if isinstance(node.slice, ast.Tuple) and inside.startswith("("):
                first = next(iter(node.slice.elts), node)
                if first.col_offset > node.slice.col_offset:
                    inside = inside[1:-1]
            is_set = isinstance(node.ctx, ast.Store)
            return _cut(f"[{inside}] =" if is_set else f"[{inside}]")
        if isinstance(node, ast.AugAssign) and is_literal(node.value):
            return self.with_number(node, node.value)
        sides = (node.right, node.left) if isinstance(node, ast.BinOp) else ()
        number = next(filter(is_literal, sides), None)
        return self.with_number(node, number) if number is not None else ""

    def in_place(self, node: ast.AugAssign) -> str:
        """What computes in place, and where: `[0] -=`."""
        sign, where = _SIGNS.get(type(node.op), ""), self.called(node.target)
        return f"{where.removesuffix(' =')} {sign}=".strip()

    def with_number(self, node: ast.AST, number: ast.expr) -> str:
        """An operator with the operand that is a number: `+ self.eps`, `1 -`; "" where
        it is no operand.
        """
        if not isinstance(node, (ast.BinOp, ast.AugAssign)):
            return ""
        sign, text = _SIGNS.get(type(node.op), ""), self.text_of(number)
        if number is getattr(node, "left", None):
            return _cut(f"{text} {sign}")
        is_other = number in (
            getattr(node, "right", None),
            getattr(node, "value", None),
        )
        return _cut(f"{sign} {text}") if is_other else ""

    def header(self, loop: ast.AST) -> str:
        """The head of a loop as the code has it: `for x, y in pairs`, `while x > 1`."""
        text = self.text_of
        if isinstance(loop, ast.While):
            return f"while {text(loop.test)}"
        parts: list[str] = []
        # a comprehension has one for each that it goes through
        for part in getattr(loop, "generators", [loop]):
            parts.append(f"for {text(part.target)} in {text(part.iter)}")
            parts += [f"if {text(test)}" for test in getattr(part, "ifs", ())]
        return " ".join(parts)

    def carried(self, loop: ast.AST) -> list[str]:
        """The variables that a turn of a loop reads before it gives them a value: those
        that the turn before it wrote. Not what only counts.
        """
        read: dict[str, None] = {}
        written: set[str] = set()
        counters: set[str] = set()
        for node in self.order:  # as they are computed
            if not self._is_in_body(node, loop):
                continue
            if not isinstance(node, (ast.Name, ast.Attribute)):
                continue
            name, around = self.text_of(node), self.parents[node].node
            adds = isinstance(around, ast.AugAssign) and around.target is node
            if name not in written and (adds or isinstance(node.ctx, ast.Load)):
                read[name] = None
            if isinstance(node.ctx, ast.Store):
                written.add(name)
            if adds and is_literal(around.value):  # type: ignore[attr-defined]
                counters.add(name)
        return [name for name in read if name in written - counters]

    def _is_in_body(self, node: ast.AST, loop: ast.AST) -> bool:
        places = ((parent, field) for parent, field, _ in self._above(node))
        return any(
            parent is loop and field in ("body", "test") for parent, field in places
        )

    @cached_property
    def last_returned(self) -> dict[str, int]:
        """The variables that it returns, with the last line that gives each a value."""
        last: dict[str, int] = {}
        returned: set[str] = set()
        for node in self.order:
            if isinstance(node, ast.Return) and node.value is not None:
                returned.add(self.text_of(node.value))
            elif isinstance(getattr(node, "ctx", None), ast.Store):
                name = self.text_of(node)
                last[name] = max(getattr(node, "lineno", 0), last.get(name, 0))
        return {name: line for name, line in last.items() if name in returned}

    # -- what may run after what ---------------------------------------------------

    def may_follow(self, earlier: ast.AST, later: ast.AST) -> bool:
        """Whether one node can run after another without a loop around both going
        round: it is not before it, nor in another arm, nor behind a jump.
        """
        if self.order[later] <= self.order[earlier]:
            return False

        outward = self.outward(later)
        places = {parent: (field, place) for parent, field, place in outward}
        places[later] = ("", 0)
        goes_on = True
        for parent, field, place in self._above(earlier):
            block = getattr(parent, field, None)
            if parent in places:
                other = places[parent]
                return goes_on and not _excludes(parent, (field, place), other)
            if isinstance(parent, LOOPS):
                goes_on = True  # what jumps in an inner loop stays in the outer one
            elif isinstance(block, list) and not _ends(block):
                continue
            elif isinstance(block, list):
                goes_on = False
        return goes_on

    def always_before(self, earlier: ast.AST, later: ast.AST) -> bool:
        """Whether whoever comes to a node has run another one."""
        within = self.blocks(earlier)
        is_before = self.order[earlier] < self.order[later]
        return is_before and self.blocks(later)[: len(within)] == within

    def runs_in_every_turn(self, node: ast.AST) -> bool:
        """Whether every turn of the innermost loop around a node runs it."""
        return self.forks_around(node) == []

    def forks_around(self, node: ast.AST) -> list[Fork] | None:
        """The conditions, inner first, that decide whether a turn of the innermost loop
        around a node runs it, each with the arm that does; None where something else
        may prevent it.
        """
        order, forks = self.order[node], list[Fork]()
        for parent, field, place in self._above(node):
            if isinstance(parent, LOOPS):
                is_inside = field in ("body", "test")
                is_before = order < self._jumps.get(parent, order + 1)
                return forks if is_inside and is_before else None
            if isinstance(parent, COMPREHENSIONS):
                return forks
            is_later = isinstance(parent, ast.BoolOp) and place > 0
            if is_later or isinstance(parent, _PARTIAL):
                return None
            if isinstance(parent, (ast.If, ast.IfExp)) and field in ("body", "orelse"):
                forks.append((parent, field))
        return forks


Fork = tuple[ast.AST, str]
"""A condition, and one of its arms: `body` or `orelse`."""
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""The fields of a statement that hold others."""
_PARTIAL = (ast.Try, ast.match_case)
_ADDING = ("append", "add", "extend", "insert", "appendleft")
_ITERATES = frozenset(
    [
        "dict",
        "enumerate",
        "filter",
        "iter",
        "list",
        "map",
        "next",
        "reversed",
        "set",
        "sorted",
        "tuple",
        "zip",
    ]
)
"""What Python calls to go over something, which is no op."""
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
}


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of a statement, of an item of `with` or of `x := y`, each with what it
    is given, goes through, or is changed by.
    """
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
        if node.value is not None:
            yield node.target, node.value
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.target, node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


def is_literal(node: ast.AST) -> bool:
    """Whether an expression is a number as it is written: `2`, `-1e-3`."""
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(
        node.value, (int, float, complex)
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _excludes(parent: ast.AST, one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether two parts of a block never run one after the other."""
    if isinstance(parent, (ast.If, ast.IfExp)):
        return {one[0], other[0]} == {"body", "orelse"}
    if isinstance(parent, ast.Try):
        arms = ("handlers", "orelse")
        return one != other and one[0] in arms and other[0] in arms
    return isinstance(parent, ast.Match) and one != other and one[0] == "cases"


def _is_block(node: ast.AST, field: str) -> bool:
    # of a lambda, and of `a if b else c`, it is an expression
    return field in BLOCKS and isinstance(getattr(node, field), list)


def _ends(block: list[Any]) -> bool:
    """Whether nothing runs after a block of statements in the same turn."""
    while block and isinstance(block[-1], ast.With):
        block = block[-1].body
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return bool(last.orelse) and _ends(last.body) and _ends(last.orelse)
    return isinstance(last, _JUMPS)


_ORDER: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Assign: ("value", "targets"),
    ast.AnnAssign: ("value", "target", "annotation"),
    ast.NamedExpr: ("value", "target"),
    ast.For: ("iter", "target", "body", "orelse"),
    ast.AsyncFor: ("iter", "target", "body", "orelse"),
    ast.IfExp: ("test", "body", "orelse"),
    ast.ListComp: ("generators", "elt"),
    ast.SetComp: ("generators", "elt"),
    ast.GeneratorExp: ("generators", "elt"),
    ast.DictComp: ("generators", "key", "value"),
    ast.comprehension: ("iter", "target", "ifs"),
}
"""The parts of a node in the order in which they are computed, where that is not the
order of the text.
"""


def _in_order(node: ast.AST) -> Iterator[tuple[ast.AST, str, int]]:
    """The children of a node as they are computed, each with its place."""
    for field in _ORDER.get(type(node), node._fields):
        value = getattr(node, field, None)
        if isinstance(value, ast.AST):
            yield value, field, 0
        elif isinstance(value, list):
            parts = enumerate(value)
            yield from ((p, field, i) for i, p in parts if isinstance(p, ast.AST))


def spans_of(node: ast.expr | ast.stmt) -> Iterator[Span]:
    """The spans that Python may give for the instruction that computes a node."""
    first, last = node.lineno, node.end_lineno or node.lineno
    start, end = node.col_offset, node.end_col_offset or 0
    yield first, last, start, end

    # a call of a method begins at the method's name from Python 3.12 on, where that is
    # on a line of its own
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        line, column = node.func.end_lineno or first, node.func.end_col_offset or 0
        if line != first:
            yield line, last, column - len(node.func.attr.encode()), end


def value_spans(value: ast.AST) -> Iterator[Span]:
    """The same of what a value may come from: of both arms of a choice."""
    if isinstance(value, ast.IfExp):
        yield from value_spans(value.body)
        yield from value_spans(value.orelse)
    elif isinstance(value, ast.NamedExpr):
        yield from value_spans(value.value)
    else:
        assert isinstance(value, (ast.expr, ast.stmt))
        yield from spans_of(value)
