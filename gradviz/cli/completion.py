"""What the shell completes: ids of checks, ops, and paths of modules. Reads text alone,
runs nothing and imports no torch.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from gradviz.features import load
from gradviz.graph.files import load as load_graph

_ID = re.compile(r'^@check\(\s*"([\w-]+)"', re.MULTILINE)
_DEEPEST = 5  # modules in each other of a script
Complete = list[str]


def check_ids(_: click.Context, __: click.Parameter, incomplete: str) -> Complete:
    """Ids of checks."""
    rules = Path(__file__).parents[1] / "checks" / "rules"
    texts = [file.read_text("utf-8") for file in rules.rglob("*.py")]
    found = [id for text in texts for id in _ID.findall(text)]
    return sorted(id for id in found if id.startswith(incomplete))


def ops(_: click.Context, __: click.Parameter, incomplete: str) -> Complete:
    """Ops that there is a formula of."""
    formulas = load("gradviz.formulas.table:FORMULA_OF")
    names = {name.removesuffix("Backward0").lower() for name in formulas}
    return sorted(name for name in names if name.startswith(incomplete))


def module_paths(ctx: click.Context, _: click.Parameter, incomplete: str) -> Complete:
    """Paths of modules and names of leaves: of a saved graph, and those that the text of
    a script assigns.
    """
    target = str(ctx.params.get("target") or "")
    names: set[str] = set()
    with suppress(Exception):  # a broken file completes to nothing
        if target.endswith(".json"):
            graph = load_graph(target)
            names = {scope.path for scope in graph.scopes}
            names |= {name for leaf in graph.leaves for name in leaf.names}
        elif os.path.isfile(target):
            with open(target, encoding="utf-8") as file:
                names = set(_assigned(ast.parse(file.read())))
    return sorted(name for name in names if name.startswith(incomplete))


def _assigned(module: ast.Module) -> Iterator[str]:
    """Global variables, and attributes of those that are made by a class of the file."""
    attributes = {
        one.name: dict(_targets(ast.walk(one)))
        for one in module.body
        if isinstance(one, ast.ClassDef)
    }
    waiting = [(name, made, 0) for name, made in _targets(module.body)]
    while waiting:
        name, made, depth = waiting.pop()
        yield name
        if depth < _DEEPEST:
            for path, inner in attributes.get(made, {}).items():
                if path.startswith("self."):
                    waiting.append((f"{name}.{path[5:]}", inner, depth + 1))


def _targets(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """What is assigned the result of a call, and what is called."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    yield ast.unparse(target), ast.unparse(node.value.func)
