"""One module that stands at several places, where the code looks as if it made several."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import cast

import torch

from gradviz.checks.collect.behind import Models, Variables
from gradviz.checks.collect.copies import files_of
from gradviz.checks.collect.recorder import Note
from gradviz.checks.run import Kind
from gradviz.cuts.leaves import class_file
from gradviz.graph import SourceLine
from gradviz.packages import is_foundation
from gradviz.source.bindings import dotted
from gradviz.source.statements import Body, bodies, called
from gradviz.variables.objects import members, parameters, submodules


def made_once(models: Models, variables: Variables) -> Iterator[Note]:
    """The lines that make one module for several places of a container; with how many
    these are, and the code of one for each.
    """
    modules = [each for _, model in models for _, each in submodules(model)]
    again = [pair for module in modules for pair in _several(module)]
    if not again:
        return
    kinds = {type(each).__name__ for each, _ in again}
    times = str(max(count for _, count in again))
    files = {class_file(type(each)) for each in modules}.union(files_of(variables))
    for file in sorted(files - {""}):
        if not is_foundation(file):
            for source, instead in _written(file, kinds):
                yield Kind.ONE_MODULE, source, times, instead


def _written(file: str, kinds: set[str]) -> Iterator[tuple[SourceLine, str]]:
    """The lines of a file that call one of its functions, or a class of these names,
    once for several places, and the code of one for each.
    """
    written = list(bodies(file))
    makers = kinds.union(body.function for body in written if _makes(body, kinds))
    for body in written:
        own = [s for s in body.statements if "deepcopy" not in ast.unparse(s)]
        for part in chain.from_iterable(map(ast.walk, own)):
            made, instead = _one_for_each(part)
            if made in makers:
                yield body.source(part), instead


def _makes(body: Body, kinds: set[str]) -> bool:
    """Whether a function calls a class of one of these names."""
    parts = chain.from_iterable(map(ast.walk, body.statements))
    return any(called(part) in kinds for part in parts)


def _several(container: torch.nn.Module) -> list[tuple[torch.nn.Module, int]]:
    """The modules with parameters that stand at several places of a container, and at
    how many.
    """
    held = [each for _, each in members(container, "_modules")]
    counts = Counter(map(id, held))
    if len(counts) == len(held):
        return []
    return [
        (each, counts[id(each)])
        for each in held
        if counts[id(each)] > 1 and parameters(each)
    ]


def _one_for_each(node: ast.AST) -> tuple[str, str]:
    """The function that makes one module for several places, and the code that calls it
    for each.

    >>> def instead(code):
    ...     return _one_for_each(ast.parse(code, mode="eval").body)
    >>> instead("[nn.Linear(4, 4)] * n")
    ('Linear', '[nn.Linear(4, 4) for _ in range(n)]')
    >>> instead("dict.fromkeys(names, mlp(3))")
    ('mlp', '{key: mlp(3) for key in names}')
    >>> instead("[layer] * 3"), instead("x.repeat(f(2), 3)")
    (('', ''), ('', ''))
    """
    each = times = cast("ast.expr | None", None)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        some, times = node.left, node.right
        if not isinstance(some, ast.List):
            some, times = times, some
        elements = list(getattr(some, "elts", ()))
        each = elements[0] if len(elements) == 1 else None
    elif isinstance(node, ast.Call) and len(node.args) == 2:
        if dotted(node.func) in ("repeat", "itertools.repeat"):
            each, times = node.args[0], node.args[1]
        elif called(node) == "fromkeys":
            keys, value = map(ast.unparse, node.args)
            return called(node.args[1]), f"{{key: {value} for key in {keys}}}"
    if not isinstance(each, ast.Call) or times is None:
        return "", ""
    return called(each), f"[{ast.unparse(each)} for _ in range({ast.unparse(times)})]"
