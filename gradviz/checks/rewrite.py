"""Writes a line of the user's anew, as advice that can be followed word for word. Knows single lines only."""

from __future__ import annotations

import ast

from gradviz.graph import SourceLine
from gradviz.source.code_line import changed_in_place, in_place_part

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
    try:
        statements = ast.parse(source.text.strip()).body if source is not None else []
    except (SyntaxError, ValueError):
        return ""
    return next(filter(None, (_rewritten(one) for one in statements if isinstance(one, ast.Assign))), "")


def _rewritten(statement: ast.Assign) -> str:
    bare = _Bare()
    value = bare.visit(statement.value)
    if not bare.found or (bare.found == 1 and bare.last is value):
        return ""
    targets = " = ".join(ast.unparse(target) for target in statement.targets)
    text = ast.unparse(value)
    if bare.wrapper:
        return f"{targets} = {bare.wrapper}({text})"
    return f"{targets} = {text if isinstance(value, ast.Call) else f'({text})'}.requires_grad_()"


class _Bare(ast.NodeTransformer):
    """Takes away what makes a leaf: `requires_grad=True`, `.requires_grad_()` and `nn.Parameter(...)`."""

    def __init__(self) -> None:
        self.found = 0
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
        kept = [one for one in node.keywords if not (one.arg == "requires_grad" and _true(one.value))]
        if len(kept) < len(node.keywords):
            node.keywords = kept
            return self._take(node)
        return node

    def _take(self, bare: ast.expr) -> ast.expr:
        self.found += 1
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
    """
    part = in_place_part(source)
    if source is None or not part:
        return None
    (statement,) = ast.parse(part).body
    if isinstance(statement, ast.AugAssign) and not isinstance(statement.target, ast.Subscript):
        value = ast.BinOp(statement.target, statement.op, statement.value)
        return part, f"{ast.unparse(statement.target)} = {ast.unparse(value)}"
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if isinstance(call.func.value, ast.Subscript) or any(isinstance(one, ast.Subscript) for one in call.args[:1]):
        return None  # the change of a part
    function = ast.Attribute(call.func.value, call.func.attr.removesuffix("_"), ast.Load())
    new = ast.unparse(ast.Call(function, call.args, call.keywords))
    alone = ast.unparse(ast.parse(source.text.strip())) == part
    return part, f"{changed_in_place(source)[0]} = {new}" if alone else new


def filled(source: SourceLine | None) -> tuple[str, ...]:
    """The containers that a line puts something into.

    >>> [filled(SourceLine("a.py", 1, "f", text)) for text in ("self.seen.append(p[a])", "losses[step] = loss", "x = (")]
    [('self.seen',), ('losses',), ()]
    """
    try:
        body = ast.parse(source.text.strip()).body if source is not None else []
    except (SyntaxError, ValueError):  # a part of a longer statement
        return ()
    found: list[str] = []
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        found += [ast.unparse(one.value) for one in targets if isinstance(one, ast.Subscript)]
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _FILLING:
                found.append(ast.unparse(call.func.value))
    return tuple(dict.fromkeys(found))
