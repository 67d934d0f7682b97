"""Reads a single line of the user's code, as far as it can be read alone: what it
assigns, adds to, reads and changes in place; and writes it anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from gradviz.graph import SourceLine
from gradviz.parsing import parse
from gradviz.source.statements import (
    InPlace,
    assigned as names_and_value,
    called,
    flattened,
    makes_leaf,
    pieces_in_place,
    reads,
)

# -- what it says ----------------------------------------------------------------------


def parsed(source: SourceLine | None) -> list[ast.stmt]:
    """The statements on a line; none where it is a part of a longer one."""
    text = source.text.strip() if source is not None else ""
    try:
        return parse(f"{text} pass" if text.endswith(":") else text).body
    except (SyntaxError, ValueError, RecursionError):
        return []


def without_comment(text: str) -> str:
    """The code of a line."""
    return re.sub(r"\s*#[^'\"]*$", "", text)


def assigned(source: SourceLine | None) -> tuple[str, ...]:
    """The names that a line of code gives a value to, as far as it can be read alone.

    >>> assigned(SourceLine("a.py", 1, "f", "out, (h, self.c) = cell(x, state)"))
    ('out', 'h', 'self.c')
    """
    given = (names_and_value(statement)[0] for statement in parsed(source))
    return tuple(name for names in given for name in names)


def read(source: SourceLine | None) -> Iterator[str]:
    """The names that a line of code reads."""
    for statement in parsed(source):
        yield from reads(statement)


def in_place(source: SourceLine | None) -> tuple[str, str]:
    """What a line of code changes in place, and the code that does; "" and "" where its
    text shows none.

    >>> [in_place(SourceLine("a.py", 1, "f", text)) for text in ("h += 1", "h[0] = f(h)", "y = self.h.add_(1) * 2")]
    [('h', 'h += 1'), ('h', 'h[0]'), ('self.h', 'self.h.add_(1)')]
    >>> in_place(SourceLine("a.py", 1, "f", "torch.relu_(h)"))
    ('h', 'torch.relu_(h)')
    """
    for _, piece in _in_place(source):
        return piece.name, ast.unparse(piece.node)
    return "", ""


def _in_place(source: SourceLine | None) -> Iterator[tuple[ast.stmt, InPlace]]:
    """The pieces of a line that change something in place, each with its statement."""
    for statement in flattened(parsed(source)):
        for piece in pieces_in_place(statement):
            yield statement, piece


# -- the same written anew -------------------------------------------------------------


def out_of_place(source: SourceLine | None) -> tuple[str, str] | None:
    """A piece of a line that changes a tensor in place, and what makes a new tensor
    instead; None when its text shows neither.

    A change of a part of a tensor, `h[0] = 1`, has no such form.

    >>> [out_of_place(SourceLine("a.py", 1, "f", text)) for text in ("h += a + b", "y = f(h.mul_(2))", "h.add_(1)")]
    [('h += a + b', 'h = h + (a + b)'), ('h.mul_(2)', 'h.mul(2)'), ('h.add_(1)', 'h = h.add(1)')]
    >>> out_of_place(SourceLine("a.py", 1, "f", "h[0] += 1")), out_of_place(SourceLine("a.py", 1, "f", "torch.relu_(h)"))
    (None, ('torch.relu_(h)', 'h = torch.relu(h)'))
    >>> out_of_place(SourceLine("a.py", 1, "f", "y = F.relu(h, inplace=True)"))
    ('F.relu(h, inplace=True)', 'F.relu(h)')
    >>> [out_of_place(SourceLine("a.py", 1, "f", text)) for text in ("y = h.add_(1).sum()", "f(h).add_(1)")]
    [('h.add_(1)', 'h.add(1)'), None]
    """
    for statement, (node, changed) in _in_place(source):
        # of a part, or of what nobody holds
        if isinstance(changed, (ast.Call, ast.Subscript)):
            return None
        name, code = ast.unparse(changed), ast.unparse(node)
        if isinstance(node, ast.AugAssign):
            value = ast.BinOp(changed, node.op, node.value)
            return code, f"{name} = {ast.unparse(value)}"

        method = called(node)
        bare = method.removesuffix("_")
        new = code.replace(f".{method}(", f".{bare}(", 1).replace(", inplace=True", "")
        alone = isinstance(statement, ast.Expr) and statement.value is node
        return code, f"{name} = {new}" if alone else new
    return None


def as_leaf(source: SourceLine | None) -> str:
    """A line that computes something of a new leaf, written so that its result is the
    leaf; "" for all other lines.

    >>> as_leaf(SourceLine("a.py", 1, "", "w = torch.randn(3, requires_grad=True) * 0.01"))
    'w = (torch.randn(3) * 0.01).requires_grad_()'
    >>> as_leaf(SourceLine("a.py", 1, "", "self.w = nn.Parameter(torch.ones(3)).to(device)"))
    'self.w = nn.Parameter(torch.ones(3).to(device))'
    >>> as_leaf(SourceLine("a.py", 1, "", "p = {'w': torch.ones(3, requires_grad=True) * 2}"))
    "p = {'w': (torch.ones(3) * 2).requires_grad_()}"
    >>> as_leaf(SourceLine("a.py", 1, "", "w = torch.randn(3, requires_grad=True)"))
    ''
    """
    for statement in parsed(source):
        if not isinstance(statement, (ast.Assign, ast.Return)):
            continue
        written = ast.unparse(statement)
        for value in _elements(statement.value):
            makers = [part for part in ast.walk(value) if makes_leaf(part)]
            # what makes a leaf and no more is as it should be
            if len(makers) != 1 or makers[0] is value:
                continue
            maker: Any = makers[0]
            leaf = "({}).requires_grad_()"
            code = bare = ast.unparse(maker)
            if called(maker) == "Parameter":
                if len(maker.args) != 1:
                    continue
                leaf = f"{ast.unparse(maker.func)}({{}})"
                bare = ast.unparse(maker.args[0])
            option = r"(, |(?<=\())requires_grad=True|\.requires_grad_\(\)$"
            bare = re.sub(option, "", bare)
            whole = ast.unparse(value)
            new = ast.parse(leaf.format(whole.replace(code, bare)), mode="eval").body
            return written.replace(whole, ast.unparse(new), 1)
    return ""


def _elements(value: Any) -> list[Any]:
    """What a display such as `{"w": a}` has, or else the value itself."""
    if isinstance(value, ast.Dict):
        return value.values
    return list(getattr(value, "elts", [value] if value is not None else []))
