"""`.ci/style.py` finds what it is for; that the repository has none of it is asked by running the script itself."""

from __future__ import annotations

import ast
import runpy
from typing import Any

import pytest

from benchmarks.size import branches, javascript_tokens, tokens
from tests.blocks import ROOT


@pytest.fixture(scope="module")
def style() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "style.py"), run_name="style")


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("gradviz.walker.walk", ("gradviz.draw.svg", False)),
        ("gradviz.draw.svg", ("gradviz.cli.main", False)),
        ("gradviz.fold.fold", ("gradviz.walker.walk", True)),
        ("gradviz.layout.graphviz", ("gradviz.fold.fold", True)),
        ("gradviz.graph.model", ("gradviz.draw.summary", False)),
        ("gradviz.draw.scene", ("gradviz.checks.finding", False)),
    ],
)
def test_an_import_of_something_higher_is_found(
    importer: str, imported: tuple[str, bool], style: dict[str, Any]
) -> None:
    found = style["structure"].Import(*imported)
    rule = style["imports_go_one_way"]
    rule.__globals__["IMPORTS"], whole = {importer: [found]}, style["IMPORTS"]
    try:
        assert len(list(rule())) == 1
    finally:
        rule.__globals__["IMPORTS"] = whole


def test_unclear_words_are_found(style: dict[str, Any]) -> None:
    found = style["unclear"]("Mend it anew.", style["WORST"] | style["UNCLEAR"])
    assert list(found) == ["'Mend': write Fix", "'anew': write again"]


def test_tokens_of_javascript_are_counted_without_comments() -> None:
    cases = {
        "/** A comment. */\nconst a = 1; // one": 4,
        "`${a} of ${b.length} \\` {`": 3 + 4,  # texts, and what is between them
        "text.replace(/[/`\"]/g, '\"') / 2": 10,
        "a?.#b ?? (() => [...c])": 13,
    }
    assert {source: javascript_tokens(source) for source in cases} == cases


def test_size_is_counted_without_comments_and_docstrings() -> None:
    code = 'def f(a):\n    """Text."""\n    # more\n    return [b for b in a if b and a] if a else ""\n'
    assert (tokens(code), branches(ast.parse(code).body[0])) == (22, 4)
