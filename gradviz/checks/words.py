"""How findings name places, tensors and lists of things, what they show of a line of
code, and how they write it anew.

A name is one line of plain text. An excerpt is the line with the part of it that
matters: what a compiler puts a caret under. Its columns come from the text of the
statement.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from gradviz.graph import Graph, Node, SourceLine
from gradviz.graph.origins import forward_name, own_line
from gradviz.source.code_line import parsed
from gradviz.source.statements import called, names_in, targets_of
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


_LONGEST = 30
"""Lines that a statement is searched for before its first line is taken alone."""
_OPERATORS: dict[str, tuple[type[ast.AST], ...]] = {
    "add": (ast.Add,),
    **dict.fromkeys(("sub", "rsub"), (ast.Sub,)),
    "mul": (ast.Mult,),
    "div": (ast.Div,),
    "pow": (ast.Pow,),
    **dict.fromkeys(
        ("mm", "bmm", "mv", "dot"),
        (ast.MatMult,),
    ),
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
    text, statements = _statements_at(source)
    if source is None or not text.strip():
        return None

    indent = len(text) - len(text.lstrip())
    columns = _part(text, part, statements) if part else None
    if columns is None:
        chosen = (_operation(statements, node) if node is not None else None) or _value(
            _about(statements, node)
        )
        columns = _columns(text, chosen, indent) if chosen is not None else None

    if columns is not None and columns[0] < columns[1]:
        start, end = columns
    else:
        start, end = (indent, _without_comment(text))

    return Excerpt(
        source.file,
        source.line,
        text,
        start + 1,
        end + 1,
    )


def around(source: SourceLine, part: str) -> str:
    """The call or comparison that a piece of code is an argument of, as the code says
    it; the piece itself when none is found.

    >>> around(SourceLine("train.py", 7, "", "y = torch.argmax(f(x), 1) * 2"), "f(x)")
    'torch.argmax(f(x), 1)'
    """
    _, statements = _statements_at(source)
    smallest = part

    for node in ast.walk(statements):  # the outer ones come first
        inside: list[ast.expr] = []
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                owner = node.func.value
            else:
                owner = node.func
            inside = [*node.args, node.func, owner]
        elif isinstance(node, ast.Compare):
            inside = [node.left, *node.comparators]
        if any(ast.unparse(inner) == part for inner in inside):
            smallest = ast.unparse(node)

    return smallest


def _statements_at(source: SourceLine | None) -> tuple[str, ast.Module]:
    """The text of a line, and the statements that begin there, their columns counted
    from the indentation.

    From the file, while that still says the same; else what was noted.
    """
    nothing = ast.Module([], [])
    if source is None:
        return "", nothing

    if source.line > 0:
        lines = linecache.getlines(source.file)[
            source.line - 1 : source.line - 1 + _LONGEST
        ]
    else:
        lines = []

    if not lines or (source.text and lines[0].strip() != source.text.strip()):
        lines = [source.text]

    first, text = lines[0].rstrip(), ""
    indent = len(first) - len(first.lstrip())
    for line in lines if first else ():
        text += line[indent:] if not line[:indent].strip() else line
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return first, ast.parse(_completed(text))

    return first, nothing


def _completed(text: str) -> str:
    """The head of a block with something in it, its columns as they are."""
    text = re.sub(r"^elif\b", "if  ", text.rstrip())
    return f"{text} pass" if text.endswith(":") else text


def _part(
    text: str,
    part: str,
    statements: ast.Module,
) -> tuple[int, int] | None:
    """Where a piece of code stands in the line, however it is spaced."""
    # a whole word, not the `x` of `exp`
    match = re.search(rf"(?:(?<!\w)|(?!\w)){re.escape(part)}(?:(?!\w)|(?<!\w))", text)
    if match is not None:
        return match.span()

    try:
        wanted = ast.unparse(ast.parse(part.strip(), mode="eval"))
    except (SyntaxError, ValueError):
        return None

    indent = len(text) - len(text.lstrip())
    for node in ast.walk(statements):
        if isinstance(node, ast.expr) and ast.unparse(node) == wanted:
            return _columns(text, node, indent)

    return None


def _operation(
    statements: ast.Module,
    node: Node,
) -> ast.expr | None:
    """The expression that calls the operation of a node, when there is exactly one."""
    name = forward_name(node)
    operators = _OPERATORS.get(name, ())
    operations = [
        expression
        for expression in ast.walk(statements)
        if (
            isinstance(expression, ast.Call)
            and called(expression) in (name, f"{name}_")
        )
        or (
            isinstance(expression, (ast.BinOp, ast.UnaryOp))
            and isinstance(expression.op, operators)
        )
    ]

    return operations[0] if len(operations) == 1 else None


def _about(
    statements: ast.Module,
    node: Node | None,
) -> ast.stmt | None:
    """The one statement of a line; of several the one that gives a name of the node, if
    exactly one does.
    """
    if len(statements.body) > 1:
        names = set(node.names if node is not None else ())
        naming = [
            one
            for one in statements.body
            for target in targets_of(one)
            if names & {*names_in(target)}
        ]
        return naming[0] if len(naming) == 1 else None
    return next(iter(statements.body), None)


def _value(
    statement: ast.stmt | None,
) -> ast.expr | ast.stmt | None:
    """The expression that a statement is about: the right side, the condition, what is
    gone through.
    """
    for name in ("value", "iter", "test", "exc"):
        value = getattr(statement, name, None)
        if isinstance(value, ast.expr):
            return statement if isinstance(statement, ast.AugAssign) else value
    items: list[ast.withitem] = getattr(statement, "items", [])
    return items[0].context_expr if items else None


def _columns(
    text: str, node: ast.expr | ast.stmt, indent: int
) -> tuple[int, int] | None:
    """Where a node stands in the first line of its statement. Columns of `ast` count
    bytes.
    """
    if node.lineno != 1:
        return None
    encoded = text[indent:].encode()
    start = indent + len(encoded[: node.col_offset].decode(errors="ignore"))
    if node.end_lineno != 1:
        return start, _without_comment(text)
    return start, indent + len(encoded[: node.end_col_offset].decode(errors="ignore"))


def _without_comment(text: str) -> int:
    """Where the code of a line ends."""
    code = text
    for at in range(len(text) - 1, -1, -1):
        if (
            text[at] == "#"
            and text[:at].count('"') % 2 == 0
            and text[:at].count("'") % 2 == 0
        ):
            code = text[:at]
    return len(code.rstrip()) or len(text)


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
