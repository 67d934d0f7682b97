"""The shape of the package: imports go one way, torch stays where live objects are read, importing costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import gradviz
from tests.blocks import PACKAGE, ROOT

MODULES = {
    ".".join(("gradviz", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# A package may import from those on lower levels and from itself.
_LEVELS = {
    "wording": -1,
    **dict.fromkeys(("errors", "rank", "stages", "features"), 0),
    **dict.fromkeys(("graph", "layout", "retired"), 1),
    **dict.fromkeys(("packages", "report"), 2),
    **dict.fromkeys(("variables", "fold"), 3),
    "walker": 4,
    **dict.fromkeys(("recording", "tensors"), 5),
    "run": 6,
    **dict.fromkeys(("draw", "explanation"), 7),
    # Above the core: the features, each a folder that can be deleted, and what stands outside
    **dict.fromkeys(("source", "inference", "memory", "compiled", "comparison", "formulas"), 8),
    "gradients": 9,
    "checks": 10,
    **dict.fromkeys(("api", "torchviz", "notebook", "page"), 11),
    **dict.fromkeys(("ranks", "testing", "watching"), 12),
    **dict.fromkeys(("integrations", "cli"), 13),
    **dict.fromkeys(("ipython", "__main__"), 14),
}
CORE = tuple(name for name, level in _LEVELS.items() if level <= _LEVELS["draw"])
FEATURES = (
    "checks",
    "source",
    "ranks",
    "gradients",
    "page",
    "inference",
    "memory",
    "compiled",
    "comparison",
    "formulas",
    "watching",
)
_READS_LIVE_OBJECTS = tuple(
    f"gradviz.{name}"
    for name in (
        *(
            "walker",
            "variables",
            "source",
            "recording",
            "run",
            "tensors",
            "explanation",
            "gradients",
            "checks",
            "api",
            "torchviz",
        ),
        *(
            "watching",
            "integrations",
            "compiled.live",
            "ranks.reading",
            "memory.fit.tracker",
            "memory.wrapped",
            "memory.oom",
        ),
    )
)


class Import(NamedTuple):
    module: str
    eager: bool  # runs when the importing module is imported


def part(module: str) -> str:
    """The package below gradviz, or the module itself at the top: "render", "graph", ..."""
    return module.split(".")[1] if "." in module else ""


def level(module: str) -> int:
    return _LEVELS.get(part(module), 0)


def imports(path: Path) -> Iterator[Import]:
    """Every import statement, but for those that only a type checker sees."""
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), True)]
    while stack:
        node, eager = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            known = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (Import(name if name in MODULES else node.module, eager) for name in known)
        eager = eager and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        stack.extend((child, eager) for child in ast.iter_child_nodes(node))


def allowed(importer: str, imported: Import) -> bool:
    """Whether one module of gradviz may import another."""
    above, below = part(importer), part(imported.module)
    if not below or not above or above == below:  # gradviz/__init__.py, or inside one package
        return True
    if level(imported.module) < level(importer):
        return True
    # A graph that prints, draws or folds itself opens a door upwards, and only when it is asked to.
    return not imported.eager and importer == "gradviz.graph.model"


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    wrong = [found for found in imports(MODULES[module]) if found.module in MODULES and not allowed(module, found)]
    assert not wrong


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("gradviz.walker.walk", Import("gradviz.draw.svg", False)),
        ("gradviz.draw.svg", Import("gradviz.cli.main", False)),
        ("gradviz.fold.fold", Import("gradviz.walker.walk", True)),
        ("gradviz.fold.fold", Import("gradviz.draw.svg", True)),
        ("gradviz.graph.model", Import("gradviz.draw.summary", True)),
        ("gradviz.layout.graphviz", Import("gradviz.fold.fold", True)),
        ("gradviz.comparison.diff", Import("gradviz.memory.table", False)),
        ("gradviz.draw.scene", Import("gradviz.checks.finding", False)),
    ],
)
def test_the_wrong_way_is_refused(importer: str, imported: Import) -> None:
    assert not allowed(importer, imported)


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith(_READS_LIVE_OBJECTS)])
def test_only_readers_of_live_objects_import_torch(module: str) -> None:
    assert not [found for found in imports(MODULES[module]) if found.module.split(".")[0] == "torch" and found.eager]


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_owns(module: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[module].read_text()))


def _loaded_by(code: str) -> set[str]:
    """Modules that running `code` in a fresh interpreter adds to those it starts with."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100)
    return set(done.stdout.split())


@pytest.mark.fresh
def test_importing_gradviz_loads_nothing_else() -> None:
    assert {name for name in _loaded_by("import gradviz") if name.startswith("gradviz")} == {"gradviz"}


HEAVY = {"torch", "numpy", "graphviz", "pygraphviz", "rich", "click", "IPython", "networkx"}


def test_importing_gradviz_loads_nothing_heavy() -> None:
    loaded = _loaded_by("import gradviz")
    assert not HEAVY & loaded
    assert len(loaded) < 40


def test_after_torch_a_walk_adds_only_gradviz() -> None:
    loaded = _loaded_by("import torch\nbefore = set(sys.modules)\nimport gradviz\ngradviz.walk")
    assert not (HEAVY - {"torch", "numpy"}) & loaded
    assert len({name for name in loaded if not name.startswith("gradviz")}) <= 5, loaded


def test_a_saved_graph_needs_no_torch() -> None:
    assert "torch" not in _loaded_by("import gradviz.graph, gradviz.graph.files, gradviz.draw.picture")


def test_the_command_line_loads_nothing_heavy_before_it_is_needed() -> None:
    assert not (HEAVY - {"click"}) & _loaded_by("import gradviz.cli.main")


@pytest.mark.parametrize("name", gradviz.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(gradviz, name) is not None and name in dir(gradviz)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'wlak'"):
        gradviz.wlak  # noqa: B018


def test_the_distribution_has_a_name_of_its_own_and_brings_the_package_and_the_command() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    assert any(line.startswith('name = "gradviz-autograd"') for line in lines)  # PyPI's gradviz is another project
    assert {'gradviz = "gradviz.__main__:main"', 'packages = ["gradviz"]'} <= set(lines)
    assert "called `gradviz-autograd`" in (ROOT / "README.md").read_text()
