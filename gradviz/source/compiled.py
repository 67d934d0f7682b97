"""The code objects that a text compiles to, and which expression of it each instruction
computes.

Only compiles; runs nothing.
"""

from __future__ import annotations
import __future__

import ast
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

from gradviz.parsing import code_of
from gradviz.source.syntax import Span

FEATURES = 0
"""Flags of a code object that say which features of the future it was compiled with."""
for _name in __future__.all_feature_names:
    FEATURES |= getattr(__future__, _name).compiler_flag

_TELLS_SPANS = hasattr(CodeType, "co_positions")
_NUMBERED = (
    *(ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Attribute),
    *(
        ast.AugAssign,
        ast.For,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
    ),
)
_FIRST = 1_000_000
"""A line that no file has."""


class Compiled(NamedTuple):
    """One code object: what it does, and before Python 3.11 the same with a line for
    each of `expressions`, where it is the same.
    """

    content: object
    numbered: CodeType | None = None
    expressions: Sequence[ast.AST] = ()

    def expression(self, instruction: int) -> ast.AST | None:
        """What an instruction computes, where it is one of the expressions."""
        if self.numbered is None:
            return None
        number = line_of(self.numbered, instruction) - _FIRST
        return self.expressions[number] if number >= 0 else None


def compiled(
    unit: Any, mode: str, features: int
) -> Iterator[tuple[CodeType, Compiled]]:
    """All code objects of a piece of text."""
    codes = list(_codes(unit, mode, features))
    if _TELLS_SPANS:
        yield from ((code, Compiled(content(code))) for code in codes)
        return
    expressions = [node for node in ast.walk(unit) if isinstance(node, _NUMBERED)]
    numbered = list(_codes_by_number(unit, mode, features, expressions))
    for code, other in zip(codes, numbered):
        # a line more may keep an instruction that does nothing
        if code.co_code == other.co_code:
            yield code, Compiled(content(code), other, expressions)
        else:
            yield code, Compiled(content(code))


def _codes_by_number(
    unit: Any, mode: str, features: int, expressions: Sequence[Any]
) -> Iterator[CodeType]:
    """The same, compiled as if each expression had a line of its own: lines are all that
    Python 3.10 tells of an instruction.
    """
    lines = [(node.lineno, node.end_lineno) for node in expressions]
    for number, node in enumerate(expressions, _FIRST):
        node.lineno = node.end_lineno = number
    try:
        yield from _codes(unit, mode, features)
    finally:
        for node, (first, last) in zip(expressions, lines):
            node.lineno, node.end_lineno = first, last


def content(code: CodeType) -> object:
    """What a code object does; those inside it have a content of their own."""
    constants = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, constants


def _codes(unit: Any, mode: str, features: int) -> Iterator[CodeType]:
    try:
        code = code_of(unit, mode, features)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting = [code]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [part for part in one.co_consts if isinstance(part, CodeType)]


def line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction, 0 for none."""
    for start, end, line in code.co_lines():
        if start <= instruction < end:
            return line or 0
    return 0


def spans(code: CodeType) -> list[Span | None]:
    """The span of each instruction; none before Python 3.11, which does not tell."""
    if not _TELLS_SPANS:
        return []
    return [
        None if None in position else position  # type: ignore[misc]
        for position in code.co_positions()
    ]
