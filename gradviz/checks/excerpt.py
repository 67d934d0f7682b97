"""The line of the user's code that a finding is about, and the part of it that matters: what a compiler puts a caret under.

Columns come from the text of the statement. Knows files of source text; knows nothing of checks.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from typing import NamedTuple

from gradviz.graph import Node, SourceLine
from gradviz.graph.origins import forward_name

_LONGEST = 30
"""Lines that a statement is searched for before its first line is taken alone."""
_OPERATORS: dict[str, tuple[type[ast.AST], ...]] = {
    "add": (ast.Add,),
    "sub": (ast.Sub,),
    "rsub": (ast.Sub,),
    "mul": (ast.Mult,),
    "div": (ast.Div,),
    "pow": (ast.Pow,),
    "mm": (ast.MatMult,),
    "bmm": (ast.MatMult,),
    "mv": (ast.MatMult,),
    "dot": (ast.MatMult,),
    "neg": (ast.USub,),
}


class Excerpt(NamedTuple):
    """A line of code with its indentation. `column` and `end_column` count its characters from 1, the end behind the last one."""

    file: str
    line: int
    text: str
    column: int
    end_column: int

    @property
    def part(self) -> str:
        """What the columns enclose."""
        return self.text[self.column - 1 : self.end_column - 1]


def excerpt(source: SourceLine | None, part: str = "", node: Node | None = None) -> Excerpt | None:
    """The line with the columns of `part`; else of the one expression in it that is the operation of `node`; else of its value.

    None when the text of the line is not known.

    >>> line = SourceLine("train.py", 7, "", "loss = torch.log(x).sum() + 1  # of the batch")
    >>> [excerpt(line).part, excerpt(line, "torch.log( x )").part, excerpt(line, node=Node(0, "SumBackward0")).part]
    ['torch.log(x).sum() + 1', 'torch.log(x)', 'torch.log(x).sum()']
    """
    lines = _lines(source) if source is not None else []
    if source is None or not lines or not lines[0].strip():
        return None
    text = lines[0].rstrip()
    indent = len(text) - len(text.lstrip())
    statement = _statement(lines, indent)
    columns = _part(text, part, statement) if part else None
    if columns is None and statement is not None:
        chosen = (_operation(statement, node) if node is not None else None) or _value(statement)
        columns = _columns(text, chosen, indent) if chosen is not None else None
    start, end = columns if columns is not None and columns[0] < columns[1] else (indent, _without_comment(text))
    return Excerpt(source.file, source.line, text, start + 1, end + 1)


def around(source: SourceLine, part: str) -> str:
    """The call or comparison that a piece of code is an argument of, as the code says it; the piece itself when none is found.

    >>> around(SourceLine("train.py", 7, "", "y = torch.argmax(f(x), 1) * 2"), "f(x)")
    'torch.argmax(f(x), 1)'
    """
    lines = _lines(source)
    text = lines[0].rstrip() if lines else ""
    statement = _statement(lines, len(text) - len(text.lstrip())) if text.strip() else None
    smallest = part
    for node in ast.walk(statement) if statement is not None else ():  # the outer ones come first
        inside = [*node.args, node.func] if isinstance(node, ast.Call) else []
        inside += [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        inside += [node.func.value] if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else []
        if any(ast.unparse(inner) == part for inner in inside):
            smallest = ast.unparse(node)
    return smallest


def _lines(source: SourceLine) -> list[str]:
    """The line and those after it from the file, while that still says the same; else what was noted."""
    lines = linecache.getlines(source.file)[source.line - 1 : source.line - 1 + _LONGEST] if source.line > 0 else []
    return lines if lines and (lines[0].strip() == source.text.strip() or not source.text) else [source.text]


def _statement(lines: list[str], indent: int) -> ast.stmt | None:
    """The statement that begins in the first line, its columns counted from `indent`."""
    text = ""
    for line in lines:
        text += line[indent:] if not line[:indent].strip() else line
        for attempt in _attempts(text):
            try:
                body = ast.parse(attempt).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            return body[0] if body else None
    return None


def _attempts(text: str) -> Iterator[str]:
    yield text
    stripped = text.rstrip()
    if stripped.endswith(":"):
        yield f"{stripped} pass"
        yield f"{stripped.replace('elif', 'if  ', 1)} pass"
    if stripped.startswith("@"):
        yield f"{stripped}\ndef f(): pass"


def _part(text: str, part: str, statement: ast.stmt | None) -> tuple[int, int] | None:
    """Where a piece of code stands in the line, however it is spaced."""
    at = text.find(part)
    while at >= 0:  # a whole word, not the `x` of `exp`
        before, after = text[:at][-1:], text[at + len(part) :][:1]
        if not (_joins(before, part[:1]) or _joins(part[-1:], after)):
            return at, at + len(part)
        at = text.find(part, at + 1)
    try:
        wanted = ast.unparse(ast.parse(part.strip(), mode="eval"))
    except (SyntaxError, ValueError):
        return None
    indent = len(text) - len(text.lstrip())
    for node in ast.walk(statement) if statement is not None else ():
        if isinstance(node, ast.expr) and ast.unparse(node) == wanted:
            return _columns(text, node, indent)
    return None


def _joins(character: str, other: str) -> bool:
    return (character.isalnum() or character == "_") and (other.isalnum() or other == "_")


def _operation(statement: ast.stmt, node: Node) -> ast.expr | None:
    """The expression that calls the operation of a node, when there is exactly one."""
    name = forward_name(node)
    operators = _OPERATORS.get(name, ())
    operations = [
        expression
        for expression in ast.walk(statement)
        if (isinstance(expression, ast.Call) and _called(expression) in (name, f"{name}_"))
        or (isinstance(expression, (ast.BinOp, ast.UnaryOp)) and isinstance(expression.op, operators))
    ]
    return operations[0] if len(operations) == 1 else None


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _value(statement: ast.stmt) -> ast.AST | None:
    """The expression that a statement is about: the right side, the condition, what is gone through."""
    for name in ("value", "iter", "test", "exc"):
        value = getattr(statement, name, None)
        if isinstance(value, ast.expr):
            return statement if isinstance(statement, ast.AugAssign) else value
    items = getattr(statement, "items", None)
    return items[0].context_expr if items else None


def _columns(text: str, node: ast.AST, indent: int) -> tuple[int, int] | None:
    """Where a node stands in the first line of its statement. Columns of `ast` count bytes."""
    line, end_line = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    if line != 1:
        return None
    encoded = text[indent:].encode()
    start = indent + len(encoded[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
    if end_line != 1:
        return start, _without_comment(text)
    return start, indent + len(encoded[: getattr(node, "end_col_offset", 0)].decode(errors="ignore"))


def _without_comment(text: str) -> int:
    """Where the code of a line ends."""
    code = text
    for at in range(len(text) - 1, -1, -1):
        if text[at] == "#" and text[:at].count('"') % 2 == 0 and text[:at].count("'") % 2 == 0:
            code = text[:at]
    return len(code.rstrip()) or len(text)
