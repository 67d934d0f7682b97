"""A line of code with the part of it that matters: what a compiler puts a caret under.

Columns come from the file, while that still says what ran; else from the text that was
noted.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from gradviz.graph import Node, SourceLine
from gradviz.graph.origins import forward_name
from gradviz.source.statements import called, names_in, nodes_of, targets_of
from gradviz.wording import one_line

_OPERATORS: dict[str, tuple[type[ast.AST], ...]] = {
    "add": (ast.Add,),
    **dict.fromkeys(("sub", "rsub"), (ast.Sub,)),
    "mul": (ast.Mult,),
    "div": (ast.Div,),
    "pow": (ast.Pow,),
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), (ast.MatMult,)),
    "neg": (ast.USub,),
}


class Excerpt(NamedTuple):
    """A line of code with its indentation. `column` and `end_column` count its
    characters from 1, the end behind the last one.
    """

    file: str
    line: int
    text: str
    column: int
    end_column: int

    @property
    def part(self) -> str:
        """What the columns enclose."""
        return self.text[self.column - 1 : self.end_column - 1]


def excerpt(
    source: SourceLine | None, part: str = "", node: Node | None = None
) -> Excerpt | None:
    """The line with the columns of `part`; else of the one expression in it that is the
    operation of `node`; else of its value.

    Of several statements on the line the value is that of the one that names the node;
    of all, where none does. None when the text of the line is not known.

    >>> line = SourceLine("train.py", 7, "", "loss = torch.log(x).sum() + 1  # of the batch")
    >>> [excerpt(line).part, excerpt(line, "torch.log( x )").part, excerpt(line, node=Node(0, "SumBackward0")).part]
    ['torch.log(x).sum() + 1', 'torch.log(x)', 'torch.log(x).sum()']
    >>> line = SourceLine("train.py", 7, "", "h = net(x); y = h.sqrt(); z = mix(y)")
    >>> nodes = Node(0, "SqrtBackward0"), Node(0, "MulBackward0", names=("z",)), Node(0, "MulBackward0")
    >>> [excerpt(line, node=node).part for node in nodes]
    ['h.sqrt()', 'mix(y)', 'h = net(x); y = h.sqrt(); z = mix(y)']
    """
    if source is None:
        return None
    text, statements = _statements_at(source)
    if not text.strip():
        return None

    columns = _part(text, part, statements) if part else None
    if columns is None:
        chosen = _operation(statements, node) or _value(_about(statements, node))
        columns = _columns(text, chosen) if chosen is not None else None
    if columns is None:
        columns = len(text) - len(text.lstrip()), _end_of_code(text, statements)

    start, end = columns
    return Excerpt(source.file, source.line, text, start + 1, end + 1)


def around(source: SourceLine, part: str) -> str:
    """The call or comparison that a piece of code is an argument of, as the code says
    it; the piece itself when none is found.

    >>> around(SourceLine("train.py", 7, "", "y = torch.argmax(f(x), 1) * 2"), "f(x)")
    'torch.argmax(f(x), 1)'
    """
    smallest = part
    for node in _parts(_statements_at(source)[1]):  # the outer ones come first
        inside: list[ast.expr] = []
        if isinstance(node, ast.Call):
            inside = [*node.args, node.func, getattr(node.func, "value", node.func)]
        elif isinstance(node, ast.Compare):
            inside = [node.left, *node.comparators]
        if part in map(ast.unparse, inside):
            smallest = ast.unparse(node)
    return smallest


def _statements_at(source: SourceLine) -> tuple[str, list[ast.stmt]]:
    """The text of a line, and the statements that begin there."""
    noted = source.text.strip()
    text = linecache.getline(source.file, source.line).rstrip()
    if text and noted in ("", text.strip()):
        statements = nodes_of(source.file, ast.stmt)
        return text, [each for each in statements if each.lineno == source.line]

    code = re.sub(r"^elif\b", "if  ", noted)
    try:
        return noted, ast.parse(f"{code} pass" if code.endswith(":") else code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return noted, []


def _parts(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        for node in ast.walk(statement):
            # the body of a block stands on lines of its own
            if getattr(node, "lineno", None) == statement.lineno:
                yield node


def _part(text: str, part: str, statements: list[ast.stmt]) -> tuple[int, int] | None:
    """Where a piece of code stands in the line, however it is spaced."""
    # a whole word, not the `x` of `exp`
    match = re.search(rf"(?:(?<!\w)|(?!\w)){re.escape(part)}(?:(?!\w)|(?<!\w))", text)
    if match is not None:
        return match.span()

    try:
        wanted = ast.unparse(ast.parse(part.strip(), mode="eval"))
    except (SyntaxError, ValueError):
        return None
    for node in _parts(statements):
        if isinstance(node, ast.expr) and ast.unparse(node) == wanted:
            return _columns(text, node)
    return None


def _operation(statements: list[ast.stmt], node: Node | None) -> ast.expr | None:
    """The expression that calls the operation of a node, when there is exactly one."""
    if node is None:
        return None

    name, found = forward_name(node), list[ast.expr]()
    for part in _parts(statements):
        if isinstance(part, ast.Call):
            matches = called(part) in (name, f"{name}_")
        elif isinstance(part, (ast.BinOp, ast.UnaryOp)):
            matches = isinstance(part.op, _OPERATORS.get(name, ()))
        else:
            continue
        found += [part] if matches else []
    return found[0] if len(found) == 1 else None


def _about(statements: list[ast.stmt], node: Node | None) -> ast.stmt | None:
    """The one statement of a line; of several the one that gives a name of the node, if
    exactly one does.
    """
    if len(statements) == 1:
        return statements[0]

    names = set(node.names if node is not None else ())
    naming: list[ast.stmt] = []
    for statement in statements:
        for target in targets_of(statement):
            naming += [statement] if names.intersection(names_in(target)) else []
    return naming[0] if len(naming) == 1 else None


def _value(statement: ast.stmt | None) -> ast.expr | ast.stmt | None:
    """The expression that a statement is about: the right side, the condition, what is
    gone through.
    """
    if isinstance(statement, ast.AugAssign):
        return statement
    for name in ("value", "iter", "test", "exc"):
        value = getattr(statement, name, None)
        if isinstance(value, ast.expr):
            return value
    items: list[ast.withitem] = getattr(statement, "items", [])
    return items[0].context_expr if items else None


def _columns(text: str, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Where a node stands in the line that it begins on. Columns of `ast` count bytes."""
    encoded = text.encode(errors="surrogatepass")
    start = len(encoded[: node.col_offset].decode(errors="ignore"))
    if node.end_lineno != node.lineno:
        return start, _end_of_code(text, [])
    return start, len(encoded[: node.end_col_offset].decode(errors="ignore"))


def _end_of_code(text: str, statements: list[ast.stmt]) -> int:
    """Where the code of a line ends."""
    if statements and statements[-1].end_lineno == statements[-1].lineno:
        return _columns(text, statements[-1])[1]
    code = re.sub(r"\s*#[^'\"]*$", "", text)
    return len(code.rstrip()) or len(text)


def code_lines(code: Excerpt, width: int) -> Iterator[str]:
    """The line as compilers show it: its number, its code without the indentation, and
    carets under what matters.

    >>> print(*code_lines(Excerpt("train.py", 12, "    y = x.detach() * 2", 9, 19), 40), sep="\\n")
    12 | y = x.detach() * 2
       |     ^^^^^^^^^^
    """
    number = str(code.line)
    room = max(20, width - len(number) - 3)
    indent = len(code.text) - len(code.text.lstrip())
    before = one_line(code.text[indent : code.column - 1].expandtabs(1))
    part = one_line(code.part.expandtabs(1))
    after = one_line(code.text[code.end_column - 1 :].expandtabs(1))

    # what matters, and what is before it as far as it fits
    if cell_len(before + part + after) > room:
        after = ""
        if cell_len(part) >= room:
            part = f"{set_cell_size(part, room - 2)}…"
        left = room - cell_len(part) - 1
        if cell_len(before) > left:
            before = f"…{set_cell_size(before[::-1], max(0, left - 1))[::-1]}"

    yield f"{number} | {before}{part}{after}".rstrip()
    yield f"{'':{len(number)}} | {'':{cell_len(before)}}{'^' * cell_len(part)}"
