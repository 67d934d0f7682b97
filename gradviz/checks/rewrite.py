"""Writes a line of the user's anew, as advice that can be followed word for word. Knows single lines only."""

from __future__ import annotations

import ast

from gradviz.graph import SourceLine
from gradviz.source.code_line import in_place_pieces, parsed

# How a line that makes no leaf should be written: what makes the numbers first, and the leaf last.


def as_leaf(source: SourceLine | None) -> str:
    """A line that computes something of a new leaf, written so that its result is the leaf; "" for all other lines.

    >>> as_leaf(SourceLine("a.py", 1, "", "w = torch.randn(3, requires_grad=True) * 0.01"))
    'w = (torch.randn(3) * 0.01).requires_grad_()'
    >>> as_leaf(SourceLine("a.py", 1, "", "self.w = nn.Parameter(torch.ones(3)).to(device)"))
    'self.w = nn.Parameter(torch.ones(3).to(device))'
    >>> as_leaf(SourceLine("a.py", 1, "", "w = torch.randn(3, requires_grad=True)"))
    ''
    """
    return next(
        filter(None, (_rewritten(statement) for statement in parsed(source) if isinstance(statement, ast.Assign))), ""
    )


def _rewritten(statement: ast.Assign) -> str:
    bare = _Bare()
    value = bare.visit(statement.value)
    if not bare.count or (bare.count == 1 and bare.last is value):
        return ""
    targets = " = ".join(ast.unparse(target) for target in statement.targets)
    text = ast.unparse(value)
    if bare.wrapper:
        return f"{targets} = {bare.wrapper}({text})"
    return f"{targets} = {text if isinstance(value, ast.Call) else f'({text})'}.requires_grad_()"


class _Bare(ast.NodeTransformer):
    """Takes away what makes a leaf: `requires_grad=True`, `.requires_grad_()` and `nn.Parameter(...)`."""

    def __init__(self) -> None:
        self.count = 0
        self.last: ast.AST | None = None
        self.wrapper = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "Parameter" and len(node.args) == 1:
            self.wrapper = ast.unparse(node.func)
            return self._take(node.args[0])
        if called == "requires_grad_" and isinstance(node.func, ast.Attribute):
            return self._take(node.func.value)
        kept = [keyword for keyword in node.keywords if not (keyword.arg == "requires_grad" and _true(keyword.value))]
        if len(kept) < len(node.keywords):
            node.keywords = kept
            return self._take(node)
        return node

    def _take(self, bare: ast.expr) -> ast.expr:
        self.count += 1
        self.last = bare
        return bare


def _true(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


_FILLING = ("add", "append", "appendleft", "extend", "extendleft", "insert", "setdefault", "update")


def out_of_place(source: SourceLine | None) -> tuple[str, str] | None:
    """A piece of a line that changes a tensor in place, and what makes a new tensor instead; None when its text shows neither.

    A change of a part of a tensor, `h[0] = 1`, has no such form.

    >>> [out_of_place(SourceLine("a.py", 1, "f", text)) for text in ("h += a + b", "y = f(h.mul_(2))", "h.add_(1)")]
    [('h += a + b', 'h = h + (a + b)'), ('h.mul_(2)', 'h.mul(2)'), ('h.add_(1)', 'h = h.add(1)')]
    >>> out_of_place(SourceLine("a.py", 1, "f", "h[0] += 1")), out_of_place(SourceLine("a.py", 1, "f", "torch.relu_(h)"))
    (None, ('torch.relu_(h)', 'h = torch.relu(h)'))
    >>> [out_of_place(SourceLine("a.py", 1, "f", text)) for text in ("if h.add_(1).sum() > 0:", "f(h).add_(1)")]
    [('h.add_(1)', 'h.add(1)'), None]
    """
    statement, piece = next(in_place_pieces(source), (None, None))
    if piece is None or isinstance(piece.changed, (ast.Subscript, ast.Call)):
        return None  # the change of a part, or of what nobody holds
    node, changed, part = piece.node, ast.unparse(piece.changed), ast.unparse(piece.node)
    if isinstance(node, ast.AugAssign):
        return part, f"{changed} = {ast.unparse(ast.BinOp(piece.changed, node.op, node.value))}"
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    function = ast.Attribute(node.func.value, node.func.attr.removesuffix("_"), ast.Load())
    new = ast.unparse(ast.Call(function, node.args, node.keywords))
    alone = isinstance(statement, ast.Expr) and statement.value is node
    return part, f"{changed} = {new}" if alone else new


def without_graph(source: SourceLine | None) -> str:
    """A line that puts one thing into a container, or adds it to a total, written so that it hands over a detached tensor.

    >>> [without_graph(SourceLine("a.py", 1, "f", text)) for text in ("a.append(l)", "a['x'].append(f(l) / 2)", "t += l")]
    ['a.append(l.detach())', "a['x'].append((f(l) / 2).detach())", 't += l.detach()']
    >>> [without_graph(SourceLine("a.py", 1, "f", text)) for text in ("a[i] = l", "a.append((l, 1))", "a.append(l.item())")]
    ['a[i] = l.detach()', '', '']
    """
    for statement in parsed(source):
        value = getattr(statement, "value", None)
        for call in ast.walk(statement):
            called = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
            fills = called in _FILLING if call is value else called in ("append", "appendleft")
            if isinstance(call, ast.Call) and fills and len(call.args) == 1 and not call.keywords:
                if not _can_detach(call.args[0]):
                    return ""
                call.args = [_detached(call.args[0])]
                return ast.unparse(statement)
        stored = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)
        if (stored or isinstance(statement, ast.AugAssign)) and value is not None and _can_detach(value):
            statement.value = _detached(value)  # type: ignore[attr-defined]
            return ast.unparse(statement)
    return ""


def _can_detach(value: ast.expr) -> bool:
    """Whether it is one thing that may be a tensor with a graph, as far as the text tells."""
    called = value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
    plain = isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Call))
    return plain and called not in ("item", "detach", "tolist", "numpy")


def _detached(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(value, "detach", ast.Load()), [], [])


def filled(source: SourceLine | None) -> tuple[str, ...]:
    """The containers that a line puts something into.

    >>> [filled(SourceLine("a.py", 1, "f", text)) for text in ("self.seen.append(p[a])", "losses[step] = loss", "x = (")]
    [('self.seen',), ('losses',), ()]
    """
    containers: list[str] = []
    for statement in parsed(source):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        containers += [ast.unparse(target.value) for target in targets if isinstance(target, ast.Subscript)]
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _FILLING:
                containers.append(ast.unparse(call.func.value))
    return tuple(dict.fromkeys(containers))
