"""A change of the user's code as data: a line, and what to write in its place. Applies
none.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradviz.checks.words import short_path
from gradviz.graph import SourceLine
from gradviz.source.code_line import in_place_pieces, parsed


class Edit(NamedTuple):
    """`new` takes the place of the code of line `source`: one line or several, indented
    as that line is.
    """

    source: SourceLine
    new: str
    # other lines of the file, further down, that change with it
    more: tuple[Edit, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """For JSON. The file is relative to the current folder."""
        source, file = self.source, short_path(self.source.file)
        data = {
            "file": file,
            "line": source.line,
            "old": source.text,
            "new": self.new,
        }
        return data | (
            {"more": [one.as_data() for one in self.more]} if self.more else {}
        )

    def applied(self, text: str) -> str:
        """The text of the file with this change, unchanged where the line says
        something else by now.

        >>> Edit(SourceLine("a.py", 2, "f", "x = y"), "x = y.detach()\\nprint(x)").applied("if z:\\n  x = y\\n")
        'if z:\\n  x = y.detach()\\n  print(x)\\n'
        """
        for one in reversed(self.more):
            text = one.applied(text)
        lines = text.splitlines()
        at = self.source.line - 1
        if at < len(lines) and lines[at].strip() == self.source.text:
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            lines[at : at + 1] = [indent + line for line in self.new.splitlines()]
        return "\n".join(lines) + "\n"


def instead(source: SourceLine | None, new: str) -> Edit | None:
    """`new` in place of a line of the user's; None where there is nothing to write, or
    no line that can be changed alone.
    """
    if not new or source is None or source.package or new == source.text:
        return None
    begins = new.endswith(f" = {source.text}")  # a statement of several lines
    if not begins and not (parsed(source) and parsed(source._replace(text=new))):
        return None
    return Edit(source, new)


def together(edits: Sequence[Edit | None]) -> Edit | None:
    """Changes of several lines of a file as one; None where one of them is none."""
    every = sorted(
        (edit for edit in edits if edit is not None), key=lambda edit: edit.source.line
    )
    whole = len(every) == len(edits) and len({edit.source.file for edit in every}) == 1
    return every[0]._replace(more=tuple(every[1:])) if whole else None


def swapped(
    one: SourceLine | None,
    other: SourceLine | None,
) -> Edit | None:
    """Two lines of a function in each other's place."""
    if (
        one is None
        or other is None
        or one.line == other.line
        or one.function != other.function
    ):
        return None
    return together([instead(one, other.text), instead(other, one.text)])


def before(source: SourceLine | None, statement: str) -> Edit | None:
    """A statement in front of a line."""
    return instead(
        source,
        f"{statement}\n{source.text}" if source is not None and statement else "",
    )


def behind(source: SourceLine | None, statement: str) -> Edit | None:
    """A statement after a line that is no block."""
    simple = (
        source is not None
        and statement
        and not source.text.endswith(":")
        and not source.text.startswith("return")
    )
    return instead(
        source, f"{source.text}\n{statement}" if source is not None and simple else ""
    )


def out_of_place(source: SourceLine | None) -> tuple[str, str] | None:
    """A piece of a line that changes a tensor in place, and what makes a new tensor
    instead; None when its text shows neither.

    A change of a part of a tensor, `h[0] = 1`, has no such form.

    >>> [out_of_place(SourceLine("a.py", 1, "f", text)) for text in ("h += a + b", "y = f(h.mul_(2))", "h.add_(1)")]
    [('h += a + b', 'h = h + (a + b)'), ('h.mul_(2)', 'h.mul(2)'), ('h.add_(1)', 'h = h.add(1)')]
    >>> out_of_place(SourceLine("a.py", 1, "f", "h[0] += 1")), out_of_place(SourceLine("a.py", 1, "f", "torch.relu_(h)"))
    (None, ('torch.relu_(h)', 'h = torch.relu(h)'))
    >>> [out_of_place(SourceLine("a.py", 1, "f", text)) for text in ("if h.add_(1).sum() > 0:", "f(h).add_(1)")]
    [('h.add_(1)', 'h.add(1)'), None]
    """
    statement, piece = next(in_place_pieces(source), (None, None))
    if source is None or piece is None or isinstance(piece.changed, ast.Call):
        return None  # the change of what nobody holds

    if isinstance(piece.changed, ast.Subscript):
        return None

    node, changed, part = (
        piece.node,
        ast.unparse(piece.changed),
        ast.unparse(piece.node),
    )
    if isinstance(node, ast.AugAssign):
        return (
            part,
            f"{changed} = {ast.unparse(ast.BinOp(piece.changed, node.op, node.value))}",
        )

    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    function = ast.Attribute(
        node.func.value,
        node.func.attr.removesuffix("_"),
        ast.Load(),
    )
    new = ast.unparse(ast.Call(function, node.args, node.keywords))
    alone = isinstance(statement, ast.Expr) and statement.value is node
    return part, f"{changed} = {new}" if alone else new
