"""The shape of the package: which folder may import from which, and who may import torch at once.

`.ci/style.py` checks it, `docs/make_architecture.py` draws it, and `tests/test_core.py` deletes each feature of it. Reads the
code without importing it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gradviz"

LEVELS = {
    **dict.fromkeys(("wording", "parsing"), -1),
    **dict.fromkeys(("errors", "rank", "stages", "features"), 0),
    **dict.fromkeys(("graph", "layout"), 1),
    **dict.fromkeys(("packages", "report"), 2),
    **dict.fromkeys(("armour", "variables", "fold"), 3),
    "walker": 4,
    "source": 5,
    **dict.fromkeys(("recording", "tensors"), 6),
    "run": 7,
    **dict.fromkeys(("draw", "explanation"), 8),
    "cli": 9,
    # Above the core: the features, each a folder that can be deleted, and what stands outside
    **dict.fromkeys(("inference", "memory", "compiled", "comparison", "formulas"), 10),
    **dict.fromkeys(("cuts", "gradients"), 11),
    "checks": 12,
    **dict.fromkeys(("api", "torchviz", "notebook", "graphml", "page"), 13),
    **dict.fromkeys(("ranks", "testing"), 14),
    **dict.fromkeys(("ipython", "__main__"), 15),
}
"""A package may import from those on lower levels and from itself."""

CORE = tuple(name for name, level in LEVELS.items() if level <= LEVELS["cli"])
OUTSIDE = ("testing", "__main__", "api", "graphml", "notebook", "ipython", "torchviz")
FEATURES = tuple(name for name in LEVELS if name not in (*CORE, *OUTSIDE))

READS_LIVE_OBJECTS = (
    "gradviz.armour",
    "gradviz.walker",
    "gradviz.variables",
    "gradviz.recording",
    "gradviz.inference.forwards",
    "gradviz.inference.ownership",
    "gradviz.cuts",
    "gradviz.run",
    "gradviz.tensors",
    "gradviz.explanation",
    "gradviz.gradients",
    "gradviz.checks",
    "gradviz.api",
    "gradviz.torchviz",
    "gradviz.compiled.live",
    "gradviz.memory.oom",
)
"""Packages and modules that may import torch when they are imported."""


class Import(NamedTuple):
    module: str
    eager: bool  # runs when the importing module is imported


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(("gradviz", *parts)).removesuffix(".__init__")] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def part(module: str) -> str:
    """The package below gradviz, or the module itself at the top: "draw", "graph", ..."""
    return module.split(".")[1] if "." in module else ""


def level(module: str) -> int:
    """How high a module stands; 0 for `gradviz` itself."""
    return LEVELS.get(part(module), 0)


def imports(tree: ast.Module, known: dict[str, Path]) -> Iterator[Import]:
    """Every import statement of a module, but for those that only a type checker sees."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, eager = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue

        if isinstance(node, ast.Import):
            yield from (Import(alias.name, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield Import(name if name in known else node.module, eager)

        eager = eager and not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        )
        waiting.extend((child, eager) for child in ast.iter_child_nodes(node))


def all_imports() -> dict[str, list[Import]]:
    """What each module imports."""
    known = modules()
    return {name: list(imports(parsed(path), known)) for name, path in known.items()}


def allowed(importer: str, imported: Import) -> bool:
    """Whether one module of gradviz may import another.

    >>> allowed("gradviz.walker.walk", Import("gradviz.draw.svg", False))
    False
    >>> allowed("gradviz.draw.svg", Import("gradviz.fold.fold", True))
    True
    """
    above, below = part(importer), part(imported.module)
    if not below or not above or above == below:  # gradviz/__init__.py, or one package
        return True
    return level(imported.module) < level(importer)
