"""Reads a single line of the user's code, as far as it can be read alone: what it
assigns, adds to, reads and changes in place; and writes it anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from gradviz.graph import SourceLine
from gradviz.source.changes import InPlace, pieces_in_place, without_index
from gradviz.source.cut import METHODS
from gradviz.source.statements import (
    EMPTY,
    called,
    flattened,
    names_in,
    reads,
    targets_of,
)

# -- what it says ----------------------------------------------------------------------


def parsed(source: SourceLine | None) -> list[ast.stmt]:
    """The statements on a line; none where it is a part of a longer one."""
    text = source.text.strip() if source is not None else ""
    try:
        return ast.parse(f"{text} pass" if text.endswith(":") else text).body
    except (SyntaxError, ValueError, RecursionError):
        return []


def without_comment(text: str) -> str:
    """The code of a line."""
    return re.sub(r"\s*#[^'\"]*$", "", text)


def span(
    text: str,
    node: ast.expr | ast.stmt,
) -> tuple[int, int]:
    """Where a node stands in the line that it begins on, to its end where it goes on.
    Columns of `ast` count bytes.
    """
    encoded = text.encode(errors="surrogatepass")
    end = node.end_col_offset if node.end_lineno == node.lineno else None
    before, until = encoded[: node.col_offset], encoded[:end]
    return len(before.decode(errors="ignore")), len(until.decode(errors="ignore"))


def assigned(source: SourceLine | None) -> tuple[str, ...]:
    """The names that a line of code gives a value to, as far as it can be read alone.

    >>> assigned(SourceLine("a.py", 1, "f", "out, (h, self.c) = cell(x, state)"))
    ('out', 'h', 'self.c')
    """
    targets = [target for each in parsed(source) for target in targets_of(each)]
    return tuple(name for target in targets for name in names_in(target))


def read(source: SourceLine | None) -> Iterator[str]:
    """The names that a line of code reads."""
    for statement in parsed(source):
        yield from reads(statement)


def adds_to(source: SourceLine | None, name: str) -> bool | None:
    """Whether a line adds something to a variable, as a running total does. None when
    the line gives it no value.

    >>> [adds_to(SourceLine("a.py", 1, "f", text), "a") for text in ("a += b", "a = a + b", "a = f(a)", "b.append(a)")]
    [True, True, False, None]
    """
    if source is None or name not in assigned(source):
        return None
    it = re.escape(name)
    return bool(re.match(rf"{it} (\+= |= ({it} \+ |.*\+ {it}$))", source.text))


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
    return next((ast.unparse(piece.node) for _, piece in in_place_pieces(source)), "")


def in_place_pieces(
    source: SourceLine | None,
) -> Iterator[tuple[ast.stmt, InPlace]]:
    """The pieces of a line that change something in place, each with its statement."""
    for statement in flattened(parsed(source)):
        for piece in pieces_in_place(statement.node):
            yield statement.node, piece


# -- the same written anew -------------------------------------------------------------


def _with(
    source: SourceLine | None,
    part: Any,
    code: str,
) -> str:
    """The line with other code in the place of a part, without its comment."""
    text = without_comment(source.text.strip()) if source is not None else ""
    start, end = span(text, part)
    return text[:start] + code + text[end:]


def _called_on(part: ast.expr, method: str) -> str:
    """The call of a method of an expression."""
    return ast.unparse(ast.parse(f"({ast.unparse(part)}).{method}()"))


def wrapped(source: SourceLine | None, function: str) -> str:
    """The line with what it assigns given to a function, "" when it is no assignment
    that can be read alone.

    >>> [wrapped(SourceLine("a.py", 1, "f", text), "List") for text in ("self.a = []", "self.a = [f(i) for i in x]", "a.b()")]
    ['self.a = List()', 'self.a = List([f(i) for i in x])', '']
    """
    for statement in parsed(source):
        if isinstance(statement, ast.Assign):
            code = ast.unparse(statement.value)
            inside = "" if re.fullmatch(EMPTY, code) else code
            return _with(source, statement.value, f"{function}({inside})")
    return ""


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
    if source is None or len(statements) != 1:
        return ""

    (statement,) = statements
    value, added = getattr(statement, "value", None), list[ast.expr]()
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call):
        # of several arguments, the one that may be a tensor
        tensors = [part for part in value.args if not isinstance(part, _NO_TENSORS)]
        added = tensors or value.args
    elif isinstance(statement, (ast.Assign, ast.AugAssign)):
        added = [statement.value]
    if len(added) != 1 or not _may_have_graph(added[0]):
        return ""

    text = source.text.strip()
    container = text[: span(text, added[0])[0]]
    steps = container.count("[") + container.endswith("(")
    if not isinstance(statement, ast.AugAssign) and steps not in (depth, depth or 1):
        return ""
    return _with(source, added[0], _called_on(added[0], "detach"))


_NO_TENSORS = (ast.Call, ast.Constant)
_TENSORS = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Call, ast.IfExp)


def _may_have_graph(value: ast.expr) -> bool:
    """Whether an expression is one thing that may be a tensor with a graph, as far as
    the text tells.
    """
    cuts = isinstance(value, ast.Call) and called(value) in METHODS
    return isinstance(value, _TENSORS) and not cuts


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
        if not isinstance(statement, ast.Assign):
            continue
        name, value = ast.unparse(statement.targets[0]), statement.value
        if name not in map(ast.unparse, ast.walk(value)):
            continue

        # each new tensor becomes a leaf, for a list has no copy_()
        if isinstance(value, (ast.ListComp, ast.DictComp)):
            part = value.value if isinstance(value, ast.DictComp) else value.elt
            return name, _with(source, part, _called_on(part, "requires_grad_"))
        if isinstance(value, ast.BinOp) and ast.unparse(value.left) == name:
            sign = {ast.Add: "+=", ast.Sub: "-="}.get(type(value.op))
            if sign is not None:
                return name, f"{name} {sign} {ast.unparse(value.right)}"
        return name, f"{name}.copy_({ast.unparse(value)})"

    return "", ""


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
    for statement, (node, changed) in in_place_pieces(source):
        # of a part, or of what nobody holds
        if isinstance(changed, (ast.Call, ast.Subscript)):
            return None
        name, code = ast.unparse(changed), ast.unparse(node)
        if isinstance(node, ast.AugAssign):
            value = ast.BinOp(changed, node.op, node.value)
            return code, f"{name} = {ast.unparse(value)}"

        method = called(node)
        new = code.replace(f".{method}(", f".{method[:-1]}(", 1)
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
    >>> as_leaf(SourceLine("a.py", 1, "", "w = torch.randn(3, requires_grad=True)"))
    ''
    """
    for statement in parsed(source):
        if not isinstance(statement, (ast.Assign, ast.Return)):
            continue
        value = statement.value or ast.Constant(None)
        calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
        makers = [call for call in calls if _makes_leaf(call)]
        # what makes a leaf and no more is as it should be
        if len(makers) != 1 or makers[0] is value:
            continue

        (maker,), code = makers, ast.unparse(value)
        bare = ast.unparse(maker)
        if called(maker) == "Parameter":
            bare = ast.unparse(maker.args[0])
        bare = re.sub(r"(, |(?<=\())requires_grad=True|\.requires_grad_\(\)$", "", bare)
        code = code.replace(ast.unparse(maker), bare)
        if called(maker) == "Parameter":
            return _with(source, value, f"{ast.unparse(maker.func)}({code})")
        leaf = ast.parse(code, mode="eval").body
        return _with(source, value, _called_on(leaf, "requires_grad_"))
    return ""


def _makes_leaf(call: ast.Call) -> bool:
    if called(call) == "Parameter":
        return len(call.args) == 1
    keywords = map(ast.unparse, call.keywords)
    return called(call) == "requires_grad_" or "requires_grad=True" in keywords


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
    alone = source._replace(text=source.text.removesuffix(","))
    parts = [part for each in parsed(alone) for part in ast.walk(each)]
    calls = [part for part in parts if isinstance(part, ast.Call)]
    calls = [call for call in calls if called(call) in functions]
    # which of two losses is meant would be a guess
    if len(calls) != 1:
        return ""

    (call,) = calls
    kept = [other for other in call.keywords if other.arg != keyword]
    call.keywords = [*kept, ast.keyword(keyword, ast.Name(value))]
    return _with(source, call, ast.unparse(call))


def calling(source: SourceLine | None, *names: str) -> str:
    """A line with a call of what has one of these names, where it is named alone or
    only made; "" for other lines.

    >>> [calling(SourceLine("a.py", 1, "f", text), "L1Loss", "item") for text in ("l = nn.L1Loss(x, y)", "t += l.item", "f(x)")]
    ['l = nn.L1Loss()(x, y)', 't += l.item()', '']
    """
    parts = [part for each in parsed(source) for part in ast.walk(each)]
    functions = [part.func for part in parts if isinstance(part, ast.Call)]
    for part in parts:
        if isinstance(part, ast.Call) and called(part) in names and part.args:
            return _with(source, part.func, f"{ast.unparse(part.func)}()")
        if part in functions or getattr(part, "attr", "") not in names:
            continue
        return _with(source, part, f"{ast.unparse(part)}()")
    return ""
