"""Noise that a loss expects, and that nothing was computed from: a function which was
called in between has drawn its own under the same name. Runs nothing.
"""

from __future__ import annotations

import ast
import re
from ast import AST, Call
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from gradviz.cuts.dataflow import CodeFile, FunctionCode
from gradviz.cuts.recorded import RecordedCode
from gradviz.graph import SourceLine
from gradviz.source.statements import called

_DRAWS = re.compile(r"(rand|randn)(_like)?|normal")
_LOSS = re.compile(r"loss|criter|mse|huber", re.I)


def drawn_twice(recorded: RecordedCode) -> Iterator[tuple[SourceLine, str, str, str]]:
    """The calls of such functions, with the name, the function, and what to do."""
    for file in recorded.files.values():
        for function, name in _drawn(file):
            uses = _uses(function, name)
            for call, other in _between(recorded, function, name, uses):
                yield recorded.line_of(call), name, other.name, _mend(call, name)


@lru_cache(maxsize=200)
def _drawn(file: CodeFile) -> list[tuple[FunctionCode, str]]:
    """The variables of a file that get random numbers, where several functions do."""
    draws = [each for each in file.calls if _DRAWS.fullmatch(called(each))]
    functions = dict.fromkeys(map(file.function_of, draws))
    if len(functions) < 2:
        return []
    return [
        (function, name)
        for function in functions
        for name in function.bindings.names
        if _is_drawn(function, name)
    ]


def _is_drawn(function: FunctionCode, name: str) -> bool:
    """Whether a function gives a variable random numbers, or what it was given instead."""
    values = function.bindings.values(name)
    every = function.bindings.of(name)
    is_known = len(values) == len([one for one in every if not one.is_parameter])
    return (
        bool(values) and is_known and all(_DRAWS.fullmatch(called(v)) for v in values)
    )


def _uses(function: FunctionCode, name: str) -> list[AST]:
    """What reads a variable behind where it got its numbers."""
    order = function.syntax.order
    drawn = order[function.bindings.of(name)[-1].node]
    return [
        part
        for part in function.syntax.order
        if isinstance(part, ast.Name)
        and part.id == name
        and order[part] > drawn
        and isinstance(part.ctx, ast.Load)
    ]


def _between(
    recorded: RecordedCode, function: FunctionCode, name: str, uses: list[AST]
) -> Iterator[tuple[Call, FunctionCode]]:
    """The calls between where a function draws numbers, and a loss which alone uses
    them, of functions that draw under the same name, and do not return that.
    """
    syntax = function.syntax
    if not uses or not all(_is_in_a_loss(function, use) for use in uses):
        return
    drawn = function.bindings.of(name)[-1].node
    for call, callees in recorded.callees.items():
        if not isinstance(call, Call) or call not in syntax.order:
            continue
        # where one was given, it may be drawn under `if noise is None`
        is_between = syntax.order[drawn] < syntax.order[call] and all(
            syntax.always_before(call, use) for use in uses
        )
        own = [each for each in callees if _is_drawn(each, name)]
        if is_between and own and not any(_returns(each, name) for each in own):
            yield call, own[0]


def _is_in_a_loss(function: FunctionCode, use: AST) -> bool:
    return any(
        isinstance(outer, Call) and _LOSS.search(called(outer))
        for outer, *_ in function.syntax.outward(use)
    )


def _returns(function: FunctionCode, name: str) -> bool:
    """Whether a function hands a variable on beside what it computes from it."""
    returned: list[Any] = function.returned
    parts = [part for each in returned for part in getattr(each, "elts", [each])]
    return any(getattr(part, "id", "") == name for part in parts)


def _mend(call: Call, name: str) -> str:
    """The call with the numbers of its caller.

    >>> _mend(ast.parse("sample(x, t)").body[0].value, "noise")
    'sample(x, t, noise=noise)'
    """
    keyword = ast.keyword(name, ast.Name(name, ast.Load()))
    return ast.unparse(ast.Call(call.func, call.args, [*call.keywords, keyword]))
