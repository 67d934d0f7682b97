"""A line of code with the part of it that matters: what a compiler puts a caret under.

Columns come from the file, while that still says what ran; else from the text that was
noted.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from gradviz.graph import Node, SourceLine
from gradviz.graph.origins import forward_name
from gradviz.source.code_line import parsed, span, without_comment
from gradviz.source.statements import called, names_in, targets_of, tree_of
from gradviz.wording import one_line

_OPERATORS: dict[str, type[ast.AST]] = {
    "add": ast.Add,
    **dict.fromkeys(("sub", "rsub"), ast.Sub),
    "mul": ast.Mult,
    "div": ast.Div,
    "pow": ast.Pow,
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), ast.MatMult),
    "neg": ast.USub,
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
    text, pieces = _pieces(source)
    if not text.strip():
        return None

    start = len(text) - len(text.lstrip())
    end = len(without_comment(text)) or len(text)
    chosen = _spelled(pieces, part) or _operation(pieces, node) or _value(pieces, node)
    if chosen is not None:
        start, last = span(text, chosen)
        end = min(last, end)
    return Excerpt(source.file, source.line, text, start + 1, end + 1)


def around(source: SourceLine, part: str) -> str:
    """The call or comparison that a piece of code is an argument of, as the code says
    it; the piece itself when none is found.

    >>> around(SourceLine("train.py", 7, "", "y = torch.argmax(f(x), 1) * 2"), "f(x)")
    'torch.argmax(f(x), 1)'
    """
    smallest = part
    for piece in _pieces(source)[1]:  # the outer ones come first
        inside: list[ast.expr] = []
        if isinstance(piece, ast.Call):
            inside = [*piece.args, piece.func, getattr(piece.func, "value", piece.func)]
        elif isinstance(piece, ast.Compare):
            inside = [piece.left, *piece.comparators]
        if part in map(ast.unparse, inside):
            smallest = ast.unparse(piece)
    return smallest


def _pieces(source: SourceLine) -> tuple[str, list[Any]]:
    """The text of a line, and the statements and expressions that begin there, the
    outer ones first.
    """
    noted, number = source.text.strip(), source.line
    text = linecache.getline(source.file, source.line).rstrip()
    tree = tree_of(source.file)
    if not text or noted not in ("", text.strip()):
        text, number = noted, 1
        whole = source._replace(text=re.sub(r"^elif\b", "if  ", noted))
        tree = ast.Module(parsed(whole), [])
    return text, [
        piece for piece in ast.walk(tree) if getattr(piece, "lineno", 0) == number
    ]


def _spelled(pieces: Sequence[Any], part: str) -> Any:
    """The piece that says this, however it is spaced."""
    codes = [part, *map(ast.unparse, parsed(SourceLine("", 1, text=part)))]
    wanted = ["".join(code.split()) for code in codes]
    for piece in pieces:
        if "".join(ast.unparse(piece).split()) in wanted:
            return piece
    return None


def _operation(pieces: Sequence[Any], node: Node | None) -> Any:
    """The expression that calls the operation of a node, when there is exactly one."""
    name = forward_name(node) if node is not None else ""
    operator = _OPERATORS.get(name, ())
    found = [
        piece
        for piece in pieces
        if called(piece) in (name, f"{name}_")
        or isinstance(getattr(piece, "op", None), operator)
    ]
    return found[0] if name and len(found) == 1 else None


def _value(pieces: Sequence[Any], node: Node | None) -> Any:
    """The expression that the one statement of a line is about: the right side, the
    condition, what is gone through. Of several statements, of the one that gives a name
    of the node, if exactly one does.
    """
    statements = [piece for piece in pieces if isinstance(piece, ast.stmt)]
    for block in list(statements):
        inside = getattr(block, "body", ())
        statements = [each for each in statements if each not in inside]
    if len(statements) > 1:
        names = set(node.names if node is not None else ())
        statements = [each for each in statements if names.intersection(_gives(each))]
    if len(statements) != 1:
        return None

    (statement,) = statements
    if isinstance(statement, ast.AugAssign):
        return statement
    items = [item.context_expr for item in getattr(statement, "items", ())]
    parts = (
        getattr(statement, name, None) for name in ("value", "iter", "test", "exc")
    )
    return next((part for part in (*items, *parts) if part is not None), None)


def _gives(statement: ast.stmt) -> Iterator[str]:
    for target in targets_of(statement):
        yield from names_in(target)


def code_lines(code: Excerpt, width: int) -> Iterator[str]:
    """The line as compilers show it: its number, its code without the indentation, and
    carets under what matters.

    >>> print(*code_lines(Excerpt("train.py", 12, "    y = x.detach() * 2", 9, 19), 40), sep="\\n")
    12 | y = x.detach() * 2
       |     ^^^^^^^^^^
    """
    number = str(code.line)
    room = max(20, width - len(number) - 3)
    before, after = code.text[: code.column - 1], code.text[code.end_column - 1 :]
    texts = (before.lstrip(), code.part, after)
    before, part, after = (one_line(text.expandtabs(1)) for text in texts)

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
