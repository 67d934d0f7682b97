"""What is written where the code of an instruction stands: the expression that it
computes, what that is called, and the loops and statements around it.
"""

from __future__ import annotations

import ast
from types import CodeType

from gradviz.source.files import file_of, forget_files
from gradviz.source.syntax import COMPREHENSIONS, LOOPS, FunctionSyntax, Span, Statement

_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.Subscript, ast.Compare)
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
    the whole statement, of which Python does not tell the part, as before 3.11.
    """

    __slots__ = (
        "around",
        "called",
        "file",
        "function",
        "head_of",
        "is_exact",
        "is_operator",
        "node",
    )

    def __init__(
        self, spots: Spots, function: FunctionSyntax, node: ast.AST, is_exact: bool
    ) -> None:
        self.file, self.function, self.node = spots.file, function, node
        end = OWN_CODE.get(spots.code.co_name, ast.Lambda)
        self.around = tuple(function.around(node, end))
        self.is_exact = is_exact
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
        if isinstance(node, (*LOOPS, *COMPREHENSIONS)):
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


class Spots:
    """The spots of one code object, by instruction."""

    def __init__(self, code: CodeType) -> None:
        self.code = code  # held, so that its identity stays its own
        self._spans = _spans(code)
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
        """The expression that an instruction computes; before Python 3.11 the statement.
        None where that is not known.
        """
        if self.function is None:
            return None
        if instruction not in self._at:
            node = self._node_at(self.function, instruction)
            spot = None
            if node is not None:
                spot = Spot(self, self.function, node, bool(self._spans))
            self._at[instruction] = spot
        return self._at[instruction]

    def _node_at(self, function: FunctionSyntax, instruction: int) -> ast.AST | None:
        if self._spans:
            span = self._spans[instruction // 2]
            return function.node_at(span) if span is not None else None
        for start, end, line in self.code.co_lines():
            if start <= instruction < end and line is not None:
                return function.statement_at(line)
        return None


def span_of(code: CodeType, instruction: int) -> Span | None:
    """The expression that an instruction computes; None where Python does not tell, as
    before 3.11.
    """
    spans = spots_of(code)._spans
    return spans[instruction // 2] if spans else None


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
    forget_files()
