"""How findings name places, tensors and lists of things, and how they write a line that
makes a leaf anew. A name is one line of plain text.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from typing import Any

from gradviz.graph import Graph, SourceLine
from gradviz.graph.origins import own_line
from gradviz.source.code_line import parsed
from gradviz.source.statements import called
from gradviz.wording import clip, few, one_line, place_text, verb as verb

SHOWN = 3
"""Names that a sentence lists before it counts the others."""
Names = tuple[str, ...]
"""The names of one thing, the usual one first, or of several things."""
COMPARISONS = {
    "gt",
    "lt",
    "ge",
    "le",
    "eq",
    "ne",
    "__gt__",
    "__lt__",
    "__ge__",
    "__le__",
    "__eq__",
    "__ne__",
}
"""What torch calls a comparison."""
CODE = 70
"""Characters of a line of code that a sentence quotes."""


def line(source: SourceLine | None) -> str:
    """`train.py:12`, with the path from the current folder on,
    `torchvision: resnet.py:92`, or "" when unknown.
    """
    if source is None:
        return ""
    # whose `linear.py` it is says more than the folder that it is installed in
    if source.package:
        return f"{one_line(source.package)}: {place_text(one_line(os.path.basename(source.file)), source.line)}"
    return place_text(one_line(short_path(source.file)), source.line)


def short_path(file: str) -> str:
    """The path as the user would type it: relative when the file is below the current
    folder.
    """
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # another drive, or a folder that is gone
        return file
    return file if file.startswith("<") or relative.startswith("..") else relative


def code(source: SourceLine | None) -> str:
    """``train.py:12 (`loss = net(x)`)``, as much of it as is known."""
    if source is None:
        return "an unknown line"
    if source.text:
        return f"{line(source)} (`{clip(source.text, CODE)}`)"
    return line(source)


def where(graph: Graph, node: int) -> str:
    """Module and line of a node: `net.fc (Linear), train.py:12`; the script's line
    first where a library's made it.
    """
    record = graph.nodes[node]
    scope = graph.scopes[record.scope] if record.scope is not None else None
    if scope is not None:
        module = f"{one_line(scope.path or scope.type)} ({one_line(scope.type)})"
    else:
        module = ""
    return places(module, line(record.script_line), line(record.source))


def places(*parts: str) -> str:
    """Those of these that are known, in a row."""
    return ", ".join(filter(None, parts))


def title(graph: Graph, node: int) -> str:
    """A node in a sentence: its op, and where it was made."""
    record = graph.nodes[node]
    return f"{record.op} ({line(own_line(record)) or f'node {node}'})"


def title_and_code(graph: Graph, node: int) -> str:
    """The same with the code of the line."""
    record = graph.nodes[node]
    source = own_line(record)
    if source is None or not source.text:
        return title(graph, node)
    return f"{record.op} ({line(source)}: `{clip(source.text, CODE)}`)"


def listed(names: Iterable[str], shown: int = SHOWN) -> str:
    """`a, b and c`, or `a, b, c, d, e, f and 3 more`."""
    every = [one_line(name) for name in names]
    if len(every) > shown:
        return few(every, shown)
    if every:
        return " and ".join(
            filter(
                None,
                (", ".join(every[:-1]), every[-1]),
            )
        )
    return ""


def first_names(things: Iterable[Any]) -> Names:
    """The first name of each leaf, node, parameter or tensor that has one."""
    return tuple(name for thing in things for name in thing.names[:1])


def all_names(things: Iterable[Any]) -> Names:
    """The names of all of them, each once."""
    return tuple(dict.fromkeys(name for thing in things for name in thing.names))


def nodes_of(things: Iterable[Any]) -> tuple[int, ...]:
    """The node of each leaf, parameter or tensor."""
    return tuple(thing.node for thing in things)


def made_at(graph: Graph, node: int | None) -> SourceLine | None:
    """The user's line that made a node, None where there is no node."""
    return own_line(graph.nodes[node]) if node is not None else None


def as_code(name: str) -> str:
    """A name as Python takes it: torch calls the parts of a Sequential "net.0".

    >>> as_code("net.layers.0.weight")
    'net.layers[0].weight'
    """
    return re.sub(r"\.(\d+)(?=[.\[]|$)", r"[\1]", one_line(name))


# How a line that makes no leaf should be written: what makes the numbers first, and the
# leaf last.


def as_leaf(source: SourceLine | None) -> str:
    """A line that computes something of a new leaf, written so that its result is the
    leaf; "" for all other lines.

    >>> as_leaf(SourceLine("a.py", 1, "", "w = torch.randn(3, requires_grad=True) * 0.01"))
    'w = (torch.randn(3) * 0.01).requires_grad_()'
    >>> as_leaf(SourceLine("a.py", 1, "", "self.w = nn.Parameter(torch.ones(3)).to(device)"))
    'self.w = nn.Parameter(torch.ones(3).to(device))'
    >>> as_leaf(SourceLine("a.py", 1, "", "w = torch.randn(3, requires_grad=True)"))
    ''
    """
    statements = (
        statement
        for statement in parsed(source)
        if isinstance(statement, (ast.Assign, ast.Return))
    )
    return next(filter(None, map(_rewritten, statements)), "")


def _rewritten(statement: ast.Assign | ast.Return) -> str:
    if statement.value is None:
        return ""
    bare = _Bare()
    value = bare.visit(statement.value)
    if not bare.count or (bare.count == 1 and bare.last is value):
        return ""
    text = ast.unparse(value)
    leaf = f"{text if isinstance(value, ast.Call) else f'({text})'}.requires_grad_()"
    statement.value = ast.Name(f"{bare.wrapper}({text})" if bare.wrapper else leaf)
    return ast.unparse(statement)


class _Bare(ast.NodeTransformer):
    """Takes away what makes a leaf: `requires_grad=True`, `.requires_grad_()` and
    `nn.Parameter(...)`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: ast.AST | None = None
        self.wrapper = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = called(node)
        if name == "Parameter" and len(node.args) == 1:
            self.wrapper = ast.unparse(node.func)
            return self._take(node.args[0])
        if name == "requires_grad_" and isinstance(node.func, ast.Attribute):
            return self._take(node.func.value)

        kept = [
            keyword
            for keyword in node.keywords
            if ast.unparse(keyword) != "requires_grad=True"
        ]
        if len(kept) < len(node.keywords):
            node.keywords = kept
            return self._take(node)

        return node

    def _take(self, bare: ast.expr) -> ast.expr:
        self.count += 1
        self.last = bare
        return bare
