"""The variable that a line of code assigns, by which the last op of the line is known, in `forward` too.

`scores = q @ k.T / d` names its division `scores`. Read from the recorded text of the line, and from the lines around it where the
statement has several. Knows no tensors.
"""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Iterator, Sequence
from functools import lru_cache

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
LONGEST = 12
"""Lines that a statement is looked for before and after its line."""


def assigned_names(sources: Sequence[SourceLine | None], order: Sequence[int]) -> dict[int, str]:
    """The variable of each node that a line made last, by node; `order` is the one in which ops ran."""
    names: dict[int, str] = {}
    for node, after in zip(order, (*order[1:], None)):
        source = sources[node]
        if source is not None and (after is None or sources[after] != source):
            name = assigned(source)
            if name:
                names[node] = name
    return names


@lru_cache(maxsize=4096)
def assigned(source: SourceLine) -> str:
    """The one variable that the statement of a line assigns, "" where it assigns none or several.

    >>> [assigned(SourceLine("net.py", 3, text=text)) for text in ("scores = q @ k.T / d", "self.h += x", "a, b = x", "f(x)")]
    ['scores', 'self.h', '', '']
    """
    for text in _texts(source):
        try:
            statements = ast.parse(text).body
        except (SyntaxError, ValueError):
            continue
        if not _is_argument(statements):
            return _target(statements[0]) if len(statements) == 1 else ""
    return ""


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
