"""What the user's code says around an instruction: the expression that it computes, the
loops and statements that this stands in, and what may run after what.

The text of a file is believed only where compiling it gives the code object that ran.
Only parses and compiles; runs nothing.
"""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any, NamedTuple

Span = tuple[int, int, int, int]
"""First and last line, first and last column in bytes, as Python counts them."""
Loop = ast.For | ast.AsyncFor | ast.While | ast.expr
"""A loop, or a comprehension, which is one whatever it goes through."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_JUMPS = (ast.Continue, ast.Break, ast.Return, ast.Raise)
_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.Subscript, ast.Compare)
_FEATURES = 0
for _name in __future__.all_feature_names:
    _FEATURES |= getattr(__future__, _name).compiler_flag
LONGEST = 40
"""Letters of a literal, or of a name for a statement, in a title."""


class Statement(NamedTuple):
    """What a statement assigns, "" where it is no more than its code, and the code that
    computes it.
    """

    node: ast.stmt
    name: str
    code: str


class Spot:
    """One expression of a function. `around` are the loops and the statement that it
    stands in, the outermost first.

    `called` is what is called there, as the code has it: `relu`, `[0, 0]`, `* 2`; ""
    where that is no more than its operator. `is_operator`: one time that it runs makes
    one op, beside views. `head_of` is the loop that goes over it.
    """

    __slots__ = ("around", "called", "function", "head_of", "is_operator", "node")

    def __init__(
        self, function: FunctionSyntax, node: ast.AST, end: type[ast.AST]
    ) -> None:
        self.function, self.node = function, node
        self.around = tuple(function.around(node, end))
        self.called = function.called(node)
        self.is_operator = isinstance(node, _OPERATORS) or (
            self.called.endswith("_") and not self.called.endswith("__")
        )
        # of which each part may be an op
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            self.is_operator = False
        parent = function.parents.get(node)
        self.head_of: ast.AST | None = None
        # Python gives either for what asks a loop for its next turn
        if isinstance(node, (*_LOOPS, *_COMPREHENSIONS)):
            self.head_of = node
        elif parent is not None and parent.field == "iter":
            self.head_of = parent.node

    @property
    def loops(self) -> list[ast.AST]:
        """The loops around it, the outermost first."""
        return [part for part in self.around if not isinstance(part, Statement)]

    def may_follow(self, earlier: Spot) -> bool:
        """Whether this can run after another spot without going round a loop that both
        are in.
        """
        return self.function.may_follow(earlier.node, self.node)

    def runs_in_every_turn(self) -> bool:
        """Whether every turn of the innermost loop runs it."""
        return self.function.runs_in_every_turn(self.node)


class _Parent(NamedTuple):
    node: ast.AST
    field: str
    place: int  # in the field, where that is a list


class FunctionSyntax:
    """The syntax of a function, or of a file outside of its functions; comprehensions
    and lambdas are a part of what they stand in.
    """

    def __init__(self, root: ast.AST, text: SourceText) -> None:
        self.root, self.text = root, text
        self.parents: dict[ast.AST, _Parent] = {}
        self.order: dict[ast.AST, int] = {}
        self._nodes: dict[Span, ast.AST] = {}
        self._by_line: dict[int, ast.AST | None] = {}
        self._jumps: dict[ast.AST, int] = {}
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
            is_inner = isinstance(node, (*_FUNCTIONS, ast.ClassDef))
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
            if isinstance(parent, _LOOPS) and field == "body":
                self._jumps.setdefault(parent, self.order[jump])
                if isinstance(jump, (ast.Continue, ast.Break)):
                    return

    def _above(self, node: ast.AST) -> Iterator[_Parent]:
        """What a node stands in, inner first, up to the end of its code object."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            if isinstance(parent.node, ast.Lambda):
                return
            parent = self.parents.get(parent.node)

    # -- what stands around --------------------------------------------------------

    def around(
        self, node: ast.AST, end: type[ast.AST] = ast.Lambda
    ) -> list[ast.AST | Statement]:
        """The loops and the statement around a node, the outermost first, within the
        innermost node of a kind that is a function of its own.
        """
        found: list[ast.AST | Statement] = []
        outside: ast.AST | None = None
        if isinstance(node, ast.stmt):
            found += self._statement(node, "")
        for parent, field, _ in self._above(node):
            if isinstance(parent, ast.comprehension) and field == "iter":
                # the first one to go through is computed before the comprehension runs
                if self.parents[parent].place == 0:
                    outside = self.parents[parent].node
            elif isinstance(parent, _LOOPS) and field in ("body", "test"):
                found.append(parent)
            elif isinstance(parent, _COMPREHENSIONS) and parent is not outside:
                found.append(parent)
                if isinstance(parent, end):
                    break
            elif isinstance(parent, ast.stmt):
                found += self._statement(parent, field)
        return found[::-1]

    def _statement(self, node: ast.stmt, field: str) -> list[Statement]:
        statement = self._statements(node) if field not in ("iter", "test") else None
        return [statement] if statement is not None else []

    def _statements(self, node: ast.stmt) -> Statement | None:
        text = self.text.of
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
        if isinstance(node, ast.Expr):
            value: Any = node.value
            if isinstance(value, ast.Yield) and value.value is not None:
                return Statement(node, "", text(value.value))
            called = getattr(value, "func", None)
            if isinstance(called, ast.Attribute) and called.attr in _ADDING:
                inside = ", ".join(map(text, value.args))
                return Statement(node, text(called.value), inside)
            return Statement(node, "", text(value))
        return None

    def called(self, node: ast.AST) -> str:
        """What is called at an expression, as the code has it."""
        if isinstance(node, ast.Call):
            called = node.func
            return getattr(called, "attr", "") or getattr(called, "id", "")
        if isinstance(node, ast.Attribute):
            return node.attr
        if isinstance(node, ast.Subscript):
            inside = f"[{self.text.of(node.slice).strip('()')}]"
            return _cut(f"{inside} =" if isinstance(node.ctx, ast.Store) else inside)
        if isinstance(node, ast.BinOp):
            sign = _SIGNS.get(type(node.op), "")
            if is_literal(node.right):
                return _cut(f"{sign} {self.text.of(node.right)}")
            if is_literal(node.left):
                return _cut(f"{self.text.of(node.left)} {sign}")
        if isinstance(node, ast.AugAssign) and is_literal(node.value):
            return _cut(f"{_SIGNS.get(type(node.op), '')} {self.text.of(node.value)}")
        return ""

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
            name, around = self.text.of(node), self.parents[node].node
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

    # -- what may run after what ---------------------------------------------------

    def may_follow(self, earlier: ast.AST, later: ast.AST) -> bool:
        """Whether one node can run after another without a loop around both going
        round: it is not before it, nor in another arm, nor behind a jump.
        """
        if self.order[later] <= self.order[earlier]:
            return False

        places = {parent: (field, place) for parent, field, place in self._above(later)}
        places[later] = ("", 0)
        goes_on = True
        for parent, field, place in self._above(earlier):
            block = getattr(parent, field, None)
            if parent in places:
                other = places[parent]
                return goes_on and not _excludes(parent, (field, place), other)
            if isinstance(parent, _LOOPS):
                goes_on = True  # what jumps in an inner loop stays in the outer one
            elif isinstance(block, list) and not _ends(block):
                continue
            elif isinstance(block, list):
                goes_on = False
        return goes_on

    def runs_in_every_turn(self, node: ast.AST) -> bool:
        """Whether every turn of the innermost loop around a node runs it."""
        order = self.order[node]
        for parent, field, place in self._above(node):
            if isinstance(parent, _LOOPS):
                return field in ("body", "test") and order < self._jumps.get(
                    parent, order + 1
                )
            if isinstance(parent, _COMPREHENSIONS):
                return True
            is_arm = field in ("body", "orelse") and isinstance(
                parent, (ast.If, ast.IfExp)
            )
            is_later = isinstance(parent, ast.BoolOp) and place > 0
            if is_arm or is_later or isinstance(parent, _PARTIAL):
                return False
        return True


OWN_CODE: dict[str, type[ast.AST]] = {
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
    "<genexpr>": ast.GeneratorExp,
}
"""Comprehensions that are functions of their own: all before Python 3.12."""
_PARTIAL = (ast.Try, ast.match_case)
_ADDING = ("append", "add", "extend", "insert", "appendleft")
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


def is_literal(node: ast.AST) -> bool:
    """Whether an expression is a number as it is written: `2`, `-1e-3`."""
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(
        node.value, (int, float, complex)
    )


def header(text: SourceText, loop: ast.AST) -> str:
    """The head of a loop as the code has it: `for x, y in pairs`, `while loss > 1`."""
    if isinstance(loop, ast.While):
        return f"while {text.of(loop.test)}"
    parts: list[str] = []
    # a comprehension has one for each that it goes through
    for part in getattr(loop, "generators", [loop]):
        parts.append(f"for {text.of(part.target)} in {text.of(part.iter)}")
        parts += [f"if {text.of(test)}" for test in getattr(part, "ifs", ())]
    return " ".join(parts)


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


# -- a file ----------------------------------------------------------------------------


class SourceText:
    """The text of a file, and its syntax."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = [line.encode() for line in lines]
        self._functions: dict[ast.AST, FunctionSyntax] = {}
        self._modules: dict[int, dict[tuple[str, int], list[object]]] = {}
        try:
            self.tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.Module([], [])

    def of(self, node: ast.AST) -> str:
        """The code of an expression in one line."""
        assert isinstance(node, (ast.expr, ast.stmt))
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = self._lines[first : last + 1]
        if not lines:
            return ""
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode(errors="replace").split())

    def function_of(self, code: CodeType) -> FunctionSyntax | None:
        """The function that a code object was compiled from; None where compiling the
        text gives another one, or the text is not there.
        """
        if not self.tree.body or not self._gives(code):
            return None
        outside = code.co_name == "<module>"
        return self._at(_function_at(self.tree, 0 if outside else code.co_firstlineno))

    @cached_property
    def imported(self) -> frozenset[str]:
        """The names that imports bind, anywhere in the file."""
        names = [
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        ]
        return frozenset(names)

    def attributes(
        self, method: ast.AST
    ) -> dict[str, list[tuple[ast.AST, ast.expr | None]]]:
        """What the class of a method gives the attributes of `self`, each time with the
        method that does.
        """
        found: dict[str, list[tuple[ast.AST, ast.expr | None]]] = {}
        for class_ in ast.walk(self.tree):
            if not isinstance(class_, ast.ClassDef) or method not in class_.body:
                continue
            for function in class_.body:
                own = getattr(getattr(function, "args", None), "args", None) or [None]
                name = getattr(own[0], "arg", "")
                for node in ast.walk(function):
                    target = getattr(node, "target", None)
                    for one in getattr(node, "targets", [target]):
                        of = getattr(one, "value", None)
                        if isinstance(one, ast.Attribute) and (
                            isinstance(of, ast.Name) and of.id == name
                        ):
                            value = getattr(node, "value", None)
                            found.setdefault(one.attr, []).append((function, value))
        return found

    @property
    def outside(self) -> FunctionSyntax:
        """What stands outside of all functions."""
        return self._at(self.tree)

    def _at(self, root: ast.AST) -> FunctionSyntax:
        if root not in self._functions:
            self._functions[root] = FunctionSyntax(root, self)
        return self._functions[root]

    def _gives(self, code: CodeType) -> bool:
        """Whether compiling the text gives this code object."""
        features = code.co_flags & _FEATURES
        if features not in self._modules:
            found: dict[tuple[str, int], list[object]] = {}
            for unit, mode in self._units(code):
                for made in _codes(_compile(unit, mode, features)):
                    key = made.co_name, made.co_firstlineno
                    found.setdefault(key, []).append(_content(made))
            self._modules[features] = found
        key = code.co_name, code.co_firstlineno
        return _content(code) in self._modules[features].get(key, ())

    def _units(self, code: CodeType) -> Iterator[tuple[Any, str]]:
        """What a file may have been compiled as: a whole; each statement, as a notebook
        and a doctest do.
        """
        yield self.tree, "exec"
        if code.co_filename.startswith("<") or "ipykernel" in code.co_filename:
            for statement in self.tree.body:
                yield ast.Module([statement], []), "exec"
                yield ast.Interactive([statement]), "single"


def _compile(unit: Any, mode: str, features: int) -> CodeType | None:
    try:
        made: CodeType = compile(
            unit, "<text>", mode, flags=features, dont_inherit=True
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return made


def _content(code: CodeType) -> object:
    """What a code object does; those inside it have a content of their own."""
    constants = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, constants


def _codes(code: CodeType | None) -> Iterator[CodeType]:
    """A code object and all inside it."""
    waiting = [code] if code is not None else []
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [part for part in one.co_consts if isinstance(part, CodeType)]


def _function_at(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line that is no lambda; the file where there is
    none.
    """
    function: ast.AST = tree
    waiting: list[Any] = list(tree.body) if line else []
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            continue
        decorators = getattr(node, "decorator_list", ())
        if isinstance(node, (ast.stmt, ast.excepthandler)):
            first = min(part.lineno for part in (node, *decorators))
            if not first <= line <= (node.end_lineno or first):
                continue
        if isinstance(node, _FUNCTIONS):
            function = node
        waiting += ast.iter_child_nodes(node)
    return function


# -- code that ran ---------------------------------------------------------------------


_REWRITTEN = ("@pytest_ar", "__compiled_fn", "__resume_at")
"""Names in code that pytest and torch.compile have made of the user's."""


class Spots:
    """The spots of one code object, by instruction."""

    def __init__(self, code: CodeType) -> None:
        self.code = code  # held, so that its identity stays its own
        self._spans = _spans(code)
        self._at: dict[int, Spot | None] = {}
        self.text, self._function = _written(code)

    @property
    def doubt(self) -> str:
        """Why the code says nothing: "edited", or "absent"; "" where it does, and where
        pytest or torch.compile has made other code of it.
        """
        if self._function is not None:
            return ""
        if any(name.startswith(_REWRITTEN) for name in self.code.co_names):
            return ""
        return "edited" if self.text is not None and self.text.tree.body else "absent"

    def at(self, instruction: int) -> Spot | None:
        """The expression that an instruction computes; before Python 3.11 the statement.
        None where that is not known.
        """
        if self._function is None:
            return None
        if instruction not in self._at:
            node = self._node_at(self._function, instruction)
            if node is not None:
                end = OWN_CODE.get(self.code.co_name, ast.Lambda)
                self._at[instruction] = Spot(self._function, node, end)
            else:
                self._at[instruction] = None
        return self._at[instruction]

    def _node_at(self, function: FunctionSyntax, instruction: int) -> ast.AST | None:
        if self._spans:
            span = self._spans[instruction // 2]
            return function.node_at(span) if span is not None else None
        lines = (
            line
            for start, end, line in self.code.co_lines()
            if start <= instruction < end
        )
        line = next(lines, None)
        return function.statement_at(line) if line is not None else None

    def header(self, loop: ast.AST) -> str:
        """The head of a loop, as the code has it."""
        assert self.text is not None
        return header(self.text, loop)

    def carried(self, loop: ast.AST) -> str:
        """The variables that turns of a loop hand to the next: `h, c`."""
        assert self._function is not None
        return ", ".join(self._function.carried(loop))


def _written(code: CodeType) -> tuple[SourceText | None, FunctionSyntax | None]:
    text = _text(code.co_filename, tuple(linecache.getlines(code.co_filename)))
    return text, text.function_of(code)


@lru_cache(maxsize=64)
def _text(file: str, lines: tuple[str, ...]) -> SourceText:
    return SourceText(list(lines))


def _spans(code: CodeType) -> list[Span | None]:
    if not hasattr(code, "co_positions"):
        return []
    return [
        None if None in position else position  # type: ignore[misc]
        for position in code.co_positions()
    ]


_READ: dict[int, Spots] = {}


def spots_of(code: CodeType) -> Spots:
    """What is written where a code object was compiled from."""
    spots = _READ.get(id(code))
    if spots is None or spots.code is not code:
        spots = _READ[id(code)] = Spots(code)
    return spots


def forget() -> None:
    """Free the text and the syntax of files."""
    _READ.clear()
    _text.cache_clear()
