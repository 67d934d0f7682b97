"""The variable that a line of code assigns, by which the last op of the line is known, in `forward` too.

`scores = q @ k.T / d` names its division `scores`. Read from the recorded text of the line, and from the lines around it where the
statement has several. Knows no tensors.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from gradviz.graph import SourceLine

_CONTAINERS = (
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Lambda,
)
_LOOP = re.compile(r"\s*(async )?(for|while)\b")
LONGEST = 12
"""Lines that a statement is looked for before and after its line."""


LONGEST_TURN = 100
"""Ops of one turn of a loop on a single line."""


def assigned_names(
    sources: Sequence[SourceLine | None], kinds: Sequence[Hashable], order: Sequence[int]
) -> dict[int, str]:
    """The variable of each node that a line made last, by node; `order` is the one in which ops ran, `kinds` which op each is."""
    names: dict[int, str] = {}
    for source, made in groupby(order, key=sources.__getitem__):
        name = assigned(source) if source is not None else ""
        if source is not None and name:
            nodes = list(made)
            names.update((nodes[end - 1], name) for end in _turn_ends(source, [kinds[node] for node in nodes]))
    return names


def _turn_ends(source: SourceLine, kinds: Sequence[Hashable]) -> Iterator[int]:
    """Where the turns end when a loop runs a line several times, and all turns but the first do the same ops; else only the end."""
    count, turn = len(kinds), len(kinds)
    if count > 1 and _is_in_loop(source):
        turns = range(_operations(source), min(count // 2, LONGEST_TURN) + 1)
        turn = next((size for size in turns if kinds[-size:] == kinds[-2 * size : -size]), count)
    yield count
    end = count - turn
    while end > 0:
        yield end
        end = end - turn if kinds[max(end - turn, 0) : end] == kinds[-turn:] else 0


@lru_cache(maxsize=4096)
def assigned(source: SourceLine) -> str:
    """The one variable that the statement of a line assigns, "" where it assigns none or several.

    >>> [assigned(SourceLine("net.py", 3, text=text)) for text in ("scores = q @ k.T / d", "self.h += x", "a, b = x", "f(x)")]
    ['scores', 'self.h', '', '']
    >>> assigned(SourceLine("net.py", 3, text="for cell in cells: h = cell(h)"))
    'h'
    """
    statement = _statement(source)
    return _target(statement) if statement is not None else ""


@lru_cache(maxsize=4096)
def _statement(source: SourceLine) -> ast.stmt | None:
    """The statement of a line; of one that begins a block, what stands behind the colon."""
    for text in _texts(source):
        try:
            statements = ast.parse(text).body
        except (SyntaxError, ValueError):
            continue
        if not _is_argument(statements):
            inside = getattr(statements[0], "body", ()) if len(statements) == 1 else ()
            statements = inside if inside and inside[0].lineno == 1 else statements
            return statements[0] if len(statements) == 1 else None
    return None


@lru_cache(maxsize=4096)
def _operations(source: SourceLine) -> int:
    """How many operations the statement of a line writes, at least 1."""
    statement = _statement(source)
    written = (ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.Call, ast.Subscript)
    return max(sum(isinstance(part, written) for part in ast.walk(statement)), 1) if statement is not None else 1


@lru_cache(maxsize=4096)
def _is_in_loop(source: SourceLine) -> bool:
    """Whether the line is the only one of a loop, or stands in one."""
    lines = linecache.getlines(source.file)[: source.line]
    line = lines[-1] if lines and lines[-1].strip() == source.text.strip() else source.text
    depth = len(line) - len(line.lstrip())
    around = (
        before for before in reversed(lines[:-1]) if before.strip() and len(before) - len(before.lstrip()) < depth
    )
    return _LOOP.match(line) is not None or _LOOP.match(next(around, "")) is not None


def _texts(source: SourceLine) -> Iterator[str]:
    """The line, then more and more lines that may be its statement."""
    yield source.text.strip()
    lines = linecache.getlines(source.file)
    here = source.line - 1
    if not 0 <= here < len(lines) or lines[here].strip() != source.text.strip():
        return  # the file is another one by now
    for before in range(LONGEST):
        for after in range(1, LONGEST):
            if before + after > 1 and here >= before:
                yield textwrap.dedent("".join(lines[here - before : here + after]))


def _is_argument(statements: Sequence[ast.stmt]) -> bool:
    """Whether this may be a line in the middle of a statement, such as an argument of a call."""
    return len(statements) == 1 and isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Tuple)


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        target = statement.target
    else:
        return ""
    if isinstance(statement.value, _CONTAINERS):
        return ""  # the variable holds a list, and no op made that
    return ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
