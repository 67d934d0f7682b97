"""What becomes of what a line of code made, and which lines of a class make, use and keep a part of it, by their text.

Reads text and attributes only; runs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import torch

from gradviz.checks.context import Dropped, Home
from gradviz.graph import SourceLine
from gradviz.packages import code_line, with_text
from gradviz.source.statements import (
    Statement,
    assigned,
    body_around,
    body_of,
    own_expressions,
)
from gradviz.variables.objects import class_attribute, members

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr)


def dropped(line: SourceLine | None) -> Dropped | None:
    """How the result of a line is lost, when no statement behind it in the same function reads it; else None."""
    body = body_around(line.file, line.line) if line is not None and not line.package else None
    if line is None or body is None:
        return None
    statements = list(body.statements)
    for i, statement in enumerate(statements):
        if isinstance(statement.node, _SIMPLE) and statement.node.lineno <= line.line <= (
            statement.node.end_lineno or 0
        ):
            if isinstance(statement.node, ast.Expr):
                return Dropped("", None) if isinstance(statement.node.value, ast.Call) else None
            names = assigned(statement.node)[0]
            if len(names) != 1 or "." in names[0] or _in_loop(statements, i):
                return None  # of several some may be used; an attribute and a loop are read elsewhere
            return next(_fates(names[0], statements[i + 1 :], body.source), None)
    return None


def _fates(name: str, later: list[Statement], source: object) -> Iterator[Dropped | None]:
    """What the first statement that mentions the name does with it; nothing uses it where none does."""
    for statement in later:
        if _reads(statement.node, name):
            yield None
        if name in assigned(statement.node)[0]:
            yield Dropped(name, source(statement.node))  # type: ignore[operator]
    yield Dropped(name, None)


def _reads(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.AugAssign) and name == getattr(statement.target, "id", ""):
        return True
    inside: Iterator[ast.AST] = (part for expression in own_expressions(statement) for part in ast.walk(expression))
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inside = ast.walk(statement)
    return any(isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load) for part in inside)


def _in_loop(statements: list[Statement], i: int) -> bool:
    """Whether a loop is around a statement: the next round may read what it made."""
    line = statements[i].node.lineno
    return any(
        isinstance(statement.node, (ast.For, ast.AsyncFor, ast.While))
        and statement.node.lineno < line <= (statement.node.end_lineno or 0)
        for statement in statements
    )


def made_at(kind: type, attribute: str) -> SourceLine | None:
    """The line of a class, or of a base of it, that assigns an attribute of `self`."""
    for base in kind.__mro__:
        for function in vars(base).values():
            code = getattr(function, "__code__", None)
            body = body_of(code) if code is not None else None
            for statement in body.statements if body is not None else ():
                if f"self.{attribute}" in assigned(statement.node)[0]:
                    assert body is not None
                    return body.source(statement.node)
    return None


def forward_of(kind: type) -> SourceLine | None:
    """The line where the forward() of a class begins."""
    code = getattr(class_attribute(kind, "forward"), "__code__", None)
    return with_text(code_line(code, code.co_firstlineno)) if code is not None else None


_FIRST = re.compile(r"(\w+)(.*)", re.DOTALL)


def home(names: Sequence[str], models: Sequence[tuple[str, torch.nn.Module]]) -> Home | None:
    """Of a parameter with these names, which begin with the name of a model; None when no model's attribute holds it.

    >>> net = torch.nn.Linear(1, 1)
    >>> home(["net.extra[0].weight"], [("net", net)])
    Home(attribute='self.extra', container='torch.nn.ModuleList', line=None)
    """
    for name in names:
        for prefix, model in models:
            if name.startswith(f"{prefix}."):
                place = _below(name[len(prefix) + 1 :], model)
                if place is not None:
                    return place
    return None


def _below(rest: str, module: torch.nn.Module) -> Home | None:
    while True:
        match = _FIRST.fullmatch(rest)
        if match is None:
            return None
        attribute, tail = match.groups()
        child = dict(members(module, "_modules")).get(attribute)
        if child is None or not tail.startswith("."):
            return Home(f"self.{attribute}", _container(tail), made_at(type(module), attribute))
        module, rest = child, tail[1:]


def _container(tail: str) -> str:
    """What registers the things in a list or dict, by how one of them is named: `[0].weight`, `['a']`; "" for an attribute."""
    match = re.match(r"\[(.*?)\](.*)", tail, re.DOTALL)
    if match is None:
        return ""
    kind = "Module" if match[2] else "Parameter"
    return f"torch.nn.{kind}{'List' if match[1].isdecimal() else 'Dict'}"
