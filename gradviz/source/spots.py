"""What is written where the code of an instruction stands: the expression that it
computes, what that is called, and the loops and statements around it.
"""

from __future__ import annotations

import ast
import builtins
from dis import opmap
from types import CodeType

from gradviz.source.compiled import line_of, spans
from gradviz.source.files import file_of
from gradviz.source.syntax import (
    COMPREHENSIONS,
    LOOPS,
    Fork,
    FunctionSyntax,
    Span,
    Statement,
    spans_of,
)

_STORE = opmap["STORE_SUBSCR"]
_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.Subscript, ast.Compare)
_GOING_THROUGH = (ast.Assign, ast.List, ast.Set, ast.Starred, ast.Tuple)
_CALLING_EACH = ("extend", "reduce", "tree_map", "update")
_REWRITTEN = ("@pytest_ar", "__compiled_fn", "__resume_at")
"""Names in code that pytest and torch.compile have made of the user's."""
OWN_CODE: dict[str, type[ast.AST]] = {
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
    "<genexpr>": ast.GeneratorExp,
}
"""Comprehensions that are functions of their own: all before Python 3.12."""


class Spot:
    """One expression of a function. `around` are the loops and the statement that it
    stands in, the outermost first.

    `called` is what is called there, as the code has it: `relu`, `[0, 0]`, `* 2`; ""
    where that is no more than its operator. `is_operator`: one time that it runs makes
    one op, beside views. `head_of` is the loop that goes over it. Not `is_exact`: it is
    the whole statement, of which Python 3.10 may not tell the part.
    """

    def __init__(
        self,
        spots: Spots,
        function: FunctionSyntax,
        node: ast.AST,
        is_exact: bool,
        is_store: bool = False,
    ) -> None:
        self.file, self.function, self.node = spots.file, function, node
        end = OWN_CODE.get(spots.code.co_name, ast.Lambda)
        self.around = tuple(function.around(node, end))
        self.is_exact = is_exact
        self.called = function.called(node)
        self.is_operator = isinstance(node, _OPERATORS) or (
            self.called.endswith("_") and not self.called.endswith("__")
        )
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            # each part may be an op
            self.is_operator &= sum(map(_is_index, node.slice.elts)) < 2
        parent = function.parents.get(node)
        # `x[i] += 1` reads its target first, and sets it last
        self._order = node
        if parent is not None and isinstance(parent.node, ast.AugAssign):
            if is_store:
                self._order = parent.node
            else:
                self.called = self.called.removesuffix(" =")
        self.head_of: ast.AST | None = None
        # Python gives either for what asks a loop for its next turn
        if isinstance(node, (*LOOPS, *COMPREHENSIONS)):
            self.head_of = node
        elif parent is not None and parent.field == "iter":
            self.head_of = parent.node

    @property
    def repeats(self) -> bool:
        """Whether it may call several times what it is given: `list(map(f, xs))`."""
        if not isinstance(self.node, ast.Call):
            return isinstance(self.node, _GOING_THROUGH)
        called = self.node.func
        if isinstance(called, ast.Name) and hasattr(builtins, called.id):
            return True
        name = getattr(called, "attr", getattr(called, "id", ""))
        return name in _CALLING_EACH

    @property
    def loops(self) -> list[ast.AST]:
        """The loops around it, the outermost first."""
        return [part for part in self.around if not isinstance(part, Statement)]

    def may_follow(self, earlier: Spot) -> bool:
        """Whether this can run after another spot without going round a loop that both
        are in.
        """
        if self._order is earlier._order and self._order is not self.node:
            return True
        return self.function.may_follow(earlier._order, self._order)

    def runs_in_every_turn(self) -> bool:
        """Whether every turn of the innermost loop runs it."""
        return self.function.runs_in_every_turn(self.node)

    def only_fork(self) -> Fork | None:
        """The one condition, and its arm, that decides whether a turn runs it."""
        forks = self.function.forks_around(self.node)
        return forks[0] if forks is not None and len(forks) == 1 else None


def _is_index(part: ast.expr) -> bool:
    """Whether a part of a subscript takes less than all: not `:` and `...`."""
    if isinstance(part, ast.Slice):
        return any((part.lower, part.upper, part.step))
    return not (isinstance(part, ast.Constant) and part.value is Ellipsis)


class Spots:
    """The spots of one code object, by instruction."""

    def __init__(self, code: CodeType) -> None:
        self.code = code  # held, so that its identity stays its own
        self._spans = spans(code)
        self._at: dict[int, Spot | None] = {}
        self.file = file_of(code.co_filename)
        self.function = self.file.function_of(code)

    @property
    def doubt(self) -> str:
        """Why the code says nothing: "edited", or "absent"; "" where it does, and where
        pytest or torch.compile has made other code of it.
        """
        if self.function is not None:
            return ""
        if any(name.startswith(_REWRITTEN) for name in self.code.co_names):
            return ""
        return "edited" if self.file.tree.body else "absent"

    def at(self, instruction: int) -> Spot | None:
        """The expression that an instruction computes, else the statement. None where
        that is not known.
        """
        if self.function is None:
            return None
        if instruction not in self._at:
            node, is_exact = self._node_at(instruction)
            spot = None
            if node is not None:
                is_store = self.code.co_code[instruction] == _STORE
                spot = Spot(self, self.function, node, is_exact, is_store)
            self._at[instruction] = spot
        return self._at[instruction]

    def _node_at(self, instruction: int) -> tuple[ast.AST | None, bool]:
        """The node that an instruction computes, and whether it is no more than that."""
        function, known = self.function, self.file.compiled(self.code)
        if function is None or known is None:
            return None, False
        if self._spans:
            span = self._spans[instruction // 2]
            return function.node_at(span) if span is not None else None, True
        node = known.expression(instruction)
        if node is None:
            return function.statement_at(line_of(self.code, instruction)), False
        parent = function.parents.get(node)
        if parent is None:
            return None, False  # it stands at the head of an inner function
        # the call of a method has the line of the method's name
        is_method = isinstance(node, ast.Attribute) and parent.field == "func"
        return parent.node if is_method else node, True

    def span(self, instruction: int) -> Span | None:
        """The expression that an instruction computes, where Python tells it."""
        if self._spans:
            return self._spans[instruction // 2]
        spot = self.at(instruction)
        if spot is None or not spot.is_exact:
            return None
        return next(spans_of(spot.node))  # type: ignore[arg-type]


def span_of(code: CodeType, instruction: int) -> Span | None:
    """The expression that an instruction computes, where Python tells it."""
    return spots_of(code).span(instruction)


_READ: dict[int, Spots] = {}


def spots_of(code: CodeType) -> Spots:
    """What is written where a code object was compiled from."""
    spots = _READ.get(id(code))
    if spots is None or spots.code is not code:
        spots = _READ[id(code)] = Spots(code)
    return spots


def forget() -> None:
    """Let go of the code that was read."""
    _READ.clear()
