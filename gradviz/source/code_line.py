"""Reads a single line of the user's code, as far as it can be read alone: what it
assigns, adds to, reads and changes in place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, cast

from gradviz.graph import SourceLine
from gradviz.source.changes import InPlace, pieces_in_place, without_index
from gradviz.source.cut import METHODS
from gradviz.source.statements import called, flattened, is_empty, names_in, targets_of


def assigned(source: SourceLine | None) -> tuple[str, ...]:
    """The names that a line of code gives a value to, as far as it can be read alone.

    >>> assigned(SourceLine("a.py", 1, "f", "out, (h, self.c) = cell(x, state)"))
    ('out', 'h', 'self.c')
    """
    targets = (
        target for statement in parsed(source) for target in targets_of(statement)
    )
    return tuple(name for target in targets for name in names_in(target))


def wrapped(source: SourceLine | None, function: str) -> str:
    """The line with what it assigns given to a function, "" when it is no assignment
    that can be read alone.

    >>> [wrapped(SourceLine("a.py", 1, "f", text), "List") for text in ("self.a = []", "self.a = [f(i) for i in x]", "a.b()")]
    ['self.a = List()', 'self.a = List([f(i) for i in x])', '']
    """
    for statement in parsed(source):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            inside = "" if is_empty(statement.value) else ast.unparse(statement.value)
            return f"{ast.unparse(statement.targets[0])} = {function}({inside})"
    return ""


def adds_to(source: SourceLine | None, name: str) -> bool | None:
    """Whether a line adds something to a variable, as a running total does. None when
    the line gives it no value.

    >>> [adds_to(SourceLine("a.py", 1, "f", text), "a") for text in ("a += b", "a = a + b", "a = f(a)", "b.append(a)")]
    [True, True, False, None]
    """
    if name not in assigned(source):
        return None
    for statement in parsed(source):
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.AugAssign):
            return True
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            return name in (ast.unparse(value.left), ast.unparse(value.right))
    return False


def changed_in_place(source: SourceLine | None) -> tuple[str, ...]:
    """What a line of code changes in place, as far as its text shows it.

    >>> [changed_in_place(SourceLine("a.py", 1, "f", text)) for text in ("h += 1", "h[0] = 1", "y = self.h.add_(1)")]
    [('h',), ('h',), ('self.h',)]
    >>> changed_in_place(SourceLine("a.py", 1, "f", "torch.relu_(h)"))
    ('h',)
    """
    names: dict[str, None] = {}
    for _, piece in in_place_pieces(source):
        names |= dict.fromkeys(names_in(without_index(piece.changed)))
    return tuple(names)


def in_place_part(source: SourceLine | None) -> str:
    """The code in a line that changes something in place, "" when its text does not
    show any.

    >>> [in_place_part(SourceLine("a.py", 1, "f", text)) for text in ("h += 1", "h[0] = f(h)", "y = self.h.add_(1) * 2")]
    ['h += 1', 'h[0]', 'self.h.add_(1)']
    """
    return next(
        (ast.unparse(piece.node) for _, piece in in_place_pieces(source)),
        "",
    )


def without_graph(source: SourceLine | None, depth: int = 1) -> str:
    """A line that puts one thing into a container, or adds it to a total, written so
    that it adds a detached tensor.

    `depth`: how many steps lead from the variable to the tensor; where the line fills a
    part less deep, "": it adds no tensor.

    >>> [without_graph(SourceLine("a.py", 1, "f", text)) for text in ("a.append(l)", "a.append(f(l) / 2)", "a[i] = l")]
    ['a.append(l.detach())', 'a.append((f(l) / 2).detach())', 'a[i] = l.detach()']
    >>> [without_graph(SourceLine("a.py", 1, "f", text)) for text in ("a.append((l, 1))", "a.append(l.item())", "t += l")]
    ['', '', 't += l.detach()']
    >>> [without_graph(SourceLine("a.py", 1, "f", text), 2) for text in ("a.append(l)", "a['x'].append(l)")]
    ['', "a['x'].append(l.detach())"]
    """
    statements = parsed(source)
    if len(statements) != 1:
        return ""

    (statement,) = statements
    value, steps = getattr(statement, "value", None), 0
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call):
        # of several arguments, the one that may be a tensor
        plain = (ast.Call, ast.Constant)
        tensors = [each for each in value.args if not isinstance(each, plain)]
        added = tensors or value.args
        into, steps = [value.func], 1
    elif isinstance(statement, (ast.Assign, ast.AugAssign)):
        added, into = [statement.value], targets_of(statement)
    else:
        return ""

    for target in into:
        steps += sum(isinstance(part, ast.Subscript) for part in ast.walk(target))
    fits = isinstance(statement, ast.AugAssign) or steps in (depth, depth or 1)
    if not fits or len(added) != 1 or not _may_have_graph(added[0]):
        return ""
    return _with(statement, added[0], _call(added[0], "detach"))


_TENSORS = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Call, ast.IfExp)


def _may_have_graph(value: ast.expr) -> bool:
    """Whether an expression is one thing that may be a tensor with a graph, as far as
    the text tells.
    """
    cuts = isinstance(value, ast.Call) and METHODS.get(called(value)) is not None
    return isinstance(value, _TENSORS) and not cuts


def _call(value: ast.AST, method: str) -> ast.Call:
    """The call of a method of an expression."""
    return ast.Call(ast.Attribute(cast("ast.expr", value), method, ast.Load()), [], [])


def _with(statement: ast.stmt, part: ast.AST, new: ast.AST) -> str:
    """The code of a statement with another expression in the place of a part."""

    class Replacing(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return new if node is part else self.generic_visit(node)

    return ast.unparse(Replacing().visit(statement))


def in_place(source: SourceLine | None) -> tuple[str, str]:
    """A line that computes a new value of a variable from the old one, written so that
    what it holds stays a leaf.

    The variable as the line spells it, and the code; both "" for other lines.

    >>> [in_place(SourceLine("a.py", 1, "f", text))[1] for text in ("w = w - 0.1 * w.grad", "d[k] = d[k].clamp(0, 1)")]
    ['w -= 0.1 * w.grad', 'd[k].copy_(d[k].clamp(0, 1))']
    >>> in_place(SourceLine("a.py", 1, "f", "ws = [w - 0.1 * g for w, g in zip(ws, grads)]"))
    ('ws', 'ws = [(w - 0.1 * g).requires_grad_() for w, g in zip(ws, grads)]')
    """
    for statement in parsed(source):
        if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
            continue
        name, value = ast.unparse(statement.targets[0]), statement.value
        one = "value" if isinstance(value, ast.DictComp) else "elt"
        if name not in map(ast.unparse, ast.walk(value)):
            continue
        if isinstance(value, (ast.ListComp, ast.DictComp)):
            part = getattr(value, one)
            return name, _with(statement, part, _call(part, "requires_grad_"))
        if isinstance(value, ast.BinOp) and ast.unparse(value.left) == name:
            sign = {
                ast.Add: "+=",
                ast.Sub: "-=",
            }.get(type(value.op))
            if sign is not None:
                return name, f"{name} {sign} {ast.unparse(value.right)}"
        return name, f"{name}.copy_({ast.unparse(value)})"

    return "", ""


def passing(
    source: SourceLine | None,
    functions: Sequence[str],
    keyword: str,
    value: str,
) -> str:
    """A line in which the one call of these functions passes this keyword argument; ""
    for other lines.

    >>> line = SourceLine("a.py", 1, "f", "loss = nn.CrossEntropyLoss(weight=w)(x, y)")
    >>> passing(line, ["CrossEntropyLoss"], "ignore_index", "0"), passing(line, ["CrossEntropyLoss"], "weight", "v")
    ('loss = nn.CrossEntropyLoss(weight=w, ignore_index=0)(x, y)', 'loss = nn.CrossEntropyLoss(weight=v)(x, y)')
    """
    if source is None:
        return ""

    # one of several arguments, on a line of its own
    comma = "," if source.text.endswith("),") else ""
    statements = parsed(source._replace(text=source.text.removesuffix(",")))
    calls = [part for each in statements for part in ast.walk(each)]
    calls = [part for part in calls if called(part) in functions]
    if len(calls) != 1 or len(statements) != 1 or not isinstance(calls[0], ast.Call):
        return ""

    kept = [other for other in calls[0].keywords if other.arg != keyword]
    calls[0].keywords = [*kept, ast.keyword(keyword, ast.Name(value))]
    return ast.unparse(statements[0]) + comma


def calling(source: SourceLine | None, *names: str) -> str:
    """A line with a call of what has one of these names, where it is named alone or
    only made; "" for other lines.

    >>> [calling(SourceLine("a.py", 1, "f", text), "L1Loss", "item") for text in ("l = nn.L1Loss(x, y)", "t += l.item", "f(x)")]
    ['l = nn.L1Loss()(x, y)', 't += l.item()', '']
    """
    for statement in parsed(source):
        parts = list(ast.walk(statement))
        functions = [part.func for part in parts if isinstance(part, ast.Call)]
        for part in parts:
            if isinstance(part, ast.Call) and called(part) in names and part.args:
                return _with(statement, part.func, ast.Call(part.func, [], []))
            named = isinstance(part, ast.Attribute) and part.attr in names
            if named and part not in functions:
                return _with(statement, part, ast.Call(cast("ast.expr", part), [], []))
    return ""


def in_place_pieces(
    source: SourceLine | None,
) -> Iterator[tuple[ast.stmt, InPlace]]:
    """The pieces of a line that change something in place, each with its statement."""
    for statement in flattened(parsed(source)):
        for piece in pieces_in_place(statement.node):
            yield statement.node, piece


def read(source: SourceLine | None) -> Iterator[str]:
    """The names that a line of code reads."""
    for statement in parsed(source):
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(
                node.ctx, ast.Load
            ):
                yield ast.unparse(node)
        if isinstance(statement, ast.AugAssign):
            yield ast.unparse(statement.target)


def parsed(source: SourceLine | None) -> list[ast.stmt]:
    """The statements on a line; none where it is a part of a longer one."""
    text = source.text.strip() if source is not None else ""
    try:
        return ast.parse(f"{text} pass" if text.endswith(":") else text).body
    except (SyntaxError, ValueError):
        return []
