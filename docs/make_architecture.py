"""Writes the table of packages and the drawing of their imports in ARCHITECTURE.md: `python docs/make_architecture.py`.

What a package or a module at the top says of itself in the first line of its
docstring is what the table says; the order, the half and who may import torch are those of docs/structure.py.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import networkx

sys.path.append(str(Path(__file__).parent))

import structure

ROOT, PACKAGE = structure.ROOT, structure.PACKAGE
PAGE = ROOT / "ARCHITECTURE.md"
TABLE = re.compile(r"(?<=<!-- packages -->\n).*?(?=<!-- end -->)", re.DOTALL)
IMPORTS = re.compile(r"(?<=<!-- imports -->\n).*?(?=<!-- end -->)", re.DOTALL)


def parts() -> dict[str, Path]:
    """Packages and modules directly below gradviz, by name; a package ends with a slash."""
    found = {}
    for path in sorted(PACKAGE.iterdir()):
        if (path / "__init__.py").exists():
            found[f"{path.name}/"] = path / "__init__.py"
        elif path.suffix == ".py" and path.stem not in ("__init__", "__main__"):
            found[path.name] = path
    return found


def owns(path: Path) -> str:
    """What a module says that it owns, up to the first full stop.

    >>> owns(PACKAGE / "errors.py")
    'Every error gradviz raises on purpose'
    """
    paragraph = (ast.get_docstring(structure.parsed(path)) or "").partition("\n\n")[0]
    return re.split(r"\.(?: |$)", paragraph.replace("\n", " "))[0]


def drawing() -> str:
    """Which package imports which when it is imported, in Mermaid. What follows from other arrows is left out."""
    found = structure.all_imports()
    pairs = {
        (structure.part(module), structure.part(imported.module))
        for module, every in found.items()
        for imported in every
        if imported.eager and imported.module in found
    }
    graph = networkx.DiGraph(
        (above, below) for above, below in pairs if above and below and above != below
    )
    below = networkx.transitive_reduction(graph)
    arrows = [
        f"  {name} --> {' & '.join(sorted(below[name]))}"
        for name in sorted(below)
        if below[name]
    ]
    return "\n".join(
        [
            "<!-- not run: it is a drawing -->",
            "```mermaid",
            "flowchart TD",
            *arrows,
            "```",
            "",
        ]
    )


def half(module: str) -> str:
    """Which half of gradviz a package belongs to."""
    name = structure.part(module)
    if name in structure.CORE:
        return "core"
    return "feature" if name in structure.FEATURES else ""


def filled(page: str) -> str:
    """The page with its table and drawing as the code is now."""
    known = {
        name: f"gradviz.{name.rstrip('/').removesuffix('.py')}" for name in parts()
    }
    rows = []
    for name in sorted(known, key=lambda name: (structure.level(known[name]), name)):
        torch = any(one.startswith(known[name]) for one in structure.READS_LIVE_OBJECTS)
        rows.append(
            f"| `{name}` | {half(known[name])} | {owns(parts()[name])} | {'yes' if torch else ''} |"
        )
    page = IMPORTS.sub(drawing(), page)
    return TABLE.sub(
        "\n".join(
            ["| in `gradviz/` | half | owns | torch |", "|---|---|---|---|", *rows, ""]
        ),
        page,
    )


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
