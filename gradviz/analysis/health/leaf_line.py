"""How a line that makes no leaf should be written: what makes the numbers first, and the leaf last."""

from __future__ import annotations

import ast

from gradviz.graph import SourceLine


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
        statement = ast.parse(source.text.strip()).body[0] if source is not None else None
    except (SyntaxError, ValueError, IndexError):
        return ""
    if not isinstance(statement, ast.Assign):
        return ""
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
