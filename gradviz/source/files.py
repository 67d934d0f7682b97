"""A file of Python as text and as syntax, and the function in it that a code object was
compiled from.

The text is believed only where compiling it gives the code object that ran. Only parses
and compiles; runs nothing.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

from gradviz.parsing import NAME, parse, without_warnings
from gradviz.source.bindings import dotted
from gradviz.source.compiled import FEATURES, Compiled, compiled, content
from gradviz.source.syntax import BLOCKS, FUNCTIONS, FunctionSyntax, assignments


class SourceText:
    """The text of a file, and its syntax."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = [line.encode() for line in lines]
        self._functions: dict[ast.AST, FunctionSyntax] = {}
        self._modules: dict[
            tuple[int, bool], dict[tuple[str, int], list[Compiled]]
        ] = {}
        try:
            self.tree = parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.Module([], [])

    def of(self, node: ast.AST) -> str:
        """The code of an expression in one line."""
        assert isinstance(node, (ast.expr, ast.stmt))
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = self._lines[first : last + 1]
        if not lines:
            return ""
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode(errors="replace").split())

    def function_of(self, code: CodeType) -> FunctionSyntax | None:
        """The function that a code object was compiled from; None where compiling the
        text gives another one, or the text is not there.
        """
        if self.compiled(code) is None:
            return None
        root: ast.AST = self.tree
        if code.co_name != "<module>":
            around = self.by_line.get(code.co_firstlineno, ())
            functions = [node for node in around if isinstance(node, FUNCTIONS)]
            root = functions[-1] if functions else self.tree
        return self.syntax_of(root)

    @cached_property
    def imported(self) -> frozenset[str]:
        """The names that imports bind, anywhere in the file."""
        names = [
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        ]
        return frozenset(names)

    def attributes(self, method: ast.AST) -> dict[str, list[tuple[ast.AST, ast.expr]]]:
        """What the class of a method gives the attributes of `self`, each time with the
        method that does.
        """
        return self._attributes.get(method, {})

    @cached_property
    def _attributes(self) -> dict[ast.AST, dict[str, list[tuple[ast.AST, ast.expr]]]]:
        """By method."""
        by_method: dict[ast.AST, dict[str, list[tuple[ast.AST, ast.expr]]]] = {}
        for class_ in self.statements:
            if isinstance(class_, ast.ClassDef):
                found = _given_attributes(class_)
                by_method.update(dict.fromkeys(class_.body, found))
        return by_method

    @cached_property
    def statements(self) -> tuple[Any, ...]:
        """All statements, outer ones first."""
        nodes: list[Any] = [self.tree]
        for node in nodes:  # grows while it is read
            nodes += inside(node)
        return tuple(node for node in nodes if isinstance(node, ast.stmt))

    @cached_property
    def by_line(self) -> Mapping[int, Sequence[Any]]:
        """The statements that go over each line, outer ones first."""
        by_line = defaultdict[int, list[Any]](list)
        for node in self.statements:
            for line in lines_of(node):
                by_line[line].append(node)
        return by_line

    @property
    def outside(self) -> FunctionSyntax:
        """What stands outside of all functions."""
        return self.syntax_of(self.tree)

    def syntax_of(self, root: ast.AST) -> FunctionSyntax:
        """Of a function, or of what stands outside of all functions."""
        if root not in self._functions:
            self._functions[root] = FunctionSyntax(root, self.of)
        return self._functions[root]

    def compiled(self, code: CodeType) -> Compiled | None:
        """What the text compiles to where this code object was made; None where that is
        another one.
        """
        features = code.co_flags & FEATURES
        variant = features, is_rewritten(code)
        if variant not in self._modules:
            found: dict[tuple[str, int], list[Compiled]] = {}
            for unit, mode in self._units(code):
                for one, known in compiled(unit, mode, features):
                    key = one.co_name, one.co_firstlineno
                    found.setdefault(key, []).append(known)
            self._modules[variant] = found
        own = content(code)
        key = code.co_name, code.co_firstlineno
        some = self._modules[variant].get(key, ())
        return next((known for known in some if known.content == own), None)

    def _units(self, code: CodeType) -> Iterator[tuple[Any, str]]:
        """What a file may have been compiled as: a whole; as pytest does; each statement,
        as a notebook and a doctest do, or its value.
        """
        if not self.tree.body:
            return
        if is_rewritten(code):
            pytest = sys.modules.get("_pytest.assertion.rewrite")
            tree = deepcopy(self.tree)
            if pytest is not None:
                with without_warnings():
                    pytest.rewrite_asserts(tree, b"", NAME)
            yield tree, "exec"
            return
        yield self.tree, "exec"
        if code.co_filename.startswith("<") or "ipykernel" in code.co_filename:
            for statement in self.tree.body:
                yield ast.Module([statement], []), "exec"
                yield ast.Interactive([statement]), "single"
                if isinstance(statement, ast.Expr):
                    yield ast.Expression(statement.value), "eval"


def is_rewritten(code: CodeType) -> bool:
    """Whether pytest has made other code of the assertions in it."""
    return "@pytest_ar" in code.co_names


def inside(node: ast.AST) -> list[Any]:
    """What the blocks of a statement have, or a handler or case, which is none."""
    return [part for name in BLOCKS for part in getattr(node, name, ())]


def lines_of(node: Any) -> range:
    """The lines of a statement or expression. Decorators are part of it."""
    first = min(part.lineno for part in (*getattr(node, "decorator_list", ()), node))
    return range(first, (node.end_lineno or node.lineno) + 1)


def file_of(name: str) -> SourceText:
    """A file as Python would show it now, read once as long as it stays the same."""
    return _text(name, tuple(linecache.getlines(name)))


@lru_cache(maxsize=100)
def _text(file: str, lines: tuple[str, ...]) -> SourceText:
    return SourceText(list(lines))


def _given_attributes(
    class_: ast.ClassDef,
) -> dict[str, list[tuple[ast.AST, ast.expr]]]:
    found: dict[str, list[tuple[ast.AST, ast.expr]]] = {}
    for function in class_.body:
        parameters = getattr(getattr(function, "args", None), "args", ())
        own = [one.arg for one in parameters[:1]]
        for node in ast.walk(function):
            for target, value in assignments(node):
                holder, _, name = dotted(target).rpartition(".")
                if holder in own:
                    found.setdefault(name, []).append((function, value))
    return found
