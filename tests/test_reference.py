"""The API reference is made of the docstrings without a warning, and what docstrings and pages refer to is there."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

import gradviz
from tests.blocks import PACKAGE, PAGES, ROOT

SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.fixture(scope="module")
def maker() -> dict[str, Any]:
    pytest.importorskip("pdoc", reason="pip install '.[docs]' brings pdoc")
    return runpy.run_path(str(ROOT / "docs" / "make_reference.py"))


@pytest.mark.slow
def test_the_reference_is_made_without_a_warning_and_without_pytest(maker: dict[str, Any], tmp_path: Path) -> None:
    make = (
        f"import runpy, sys; sys.modules['pytest'] = None; runpy.run_path({str(ROOT / 'docs' / 'make_reference.py')!r})"
    )
    done = run([sys.executable, "-c", f"{make}['write'](__import__('pathlib').Path({str(tmp_path)!r}))"], cwd=ROOT)
    assert done.returncode == 0
    pages = sorted(tmp_path.rglob("*.md"))
    assert len(pages) == len(maker["MODULES"]) + 1
    front = (tmp_path / "gradviz.md").read_text(encoding="utf-8")
    assert all(f"{{ #{name} }}" in front for name in gradviz.__all__ if name != "__version__")
    everything = "".join(page.read_text(encoding="utf-8") for page in pages)
    returned = {str(getattr(getattr(gradviz, name), "__annotations__", {}).get("return")) for name in gradviz.__all__}
    others = ("None", "Any", "MultiDiGraph", "Digraph", "RenderableType")
    ours = {name for name in returned if name.isidentifier() and name not in others}
    assert {"Graph", "Findings", "Saved"} <= ours
    assert {name for name in ours if f"{{ #{name} }}" not in everything} == set()


def resolves(name: str) -> bool:
    """Whether a dotted name leads to something, through modules and then attributes.

    >>> resolves("gradviz.graph.Graph.save"), resolves("gradviz.graph.Graph.safe")
    (True, False)
    """
    words = name.split(".")
    for end in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:end]))
        except ImportError:
            continue
        for word in words[end:]:
            if not hasattr(found, word) and word not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, word, None)
        return True
    return False


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


@pytest.mark.slow
def test_names_in_docstrings_and_pages_lead_somewhere() -> None:
    texts = {path: "\n".join(docstrings(path)) for path in SOURCES}
    texts |= {path: path.read_text(encoding="utf-8") for path in PAGES if path.name != "CHANGELOG.md"}
    named = {(name, path.name) for path, text in texts.items() for name in re.findall(r"`(gradviz(?:\.\w+)+)", text)}
    assert len(named) > 50
    assert [f"{name} in {file}" for name, file in sorted(named) if not resolves(name)] == []
