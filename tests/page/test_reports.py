"""Findings and differences as pages, and the frame in a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gradviz
from gradviz.checks.excerpt import Excerpt
from gradviz.checks.finding import Finding, Findings
from gradviz.comparison.diff import diff
from gradviz.draw.options import Options
from gradviz.graph import Edge, Graph
from gradviz.page.html import render_difference, render_findings
from tests.builders import GRAPHS, chain
from tests.page.graphs import blocks


@pytest.fixture
def read(browser: Any, tmp_path: Path) -> Callable[[str], Any]:
    """Opens a page given as text."""

    def opened(text: str) -> Any:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(reduced_motion="reduce")
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    return opened


def _found(graph: Graph) -> Findings:
    nodes = (len(graph.nodes) // 2,)
    first = Finding(
        "stale-saved", "error", "<b>it</b> was modified", ("h",), "train.py:3", "version 2", "clone it", nodes
    )
    code = Excerpt("train.py", 3, "    h.add_(1)  # <b>", 5, 14)
    after = replace(first, id="after", summary="it cannot be known")
    first = replace(first, code=code, consequences=(after,))
    return Findings((first, replace(first, id="other", severity="note", nodes=())), ("stale-saved",), (graph,), (None,))


@pytest.mark.slow
def test_findings_are_listed_and_jump_to_their_box(read: Callable[[str], Any]) -> None:
    graph = blocks(30)
    page = read("".join(render_findings(_found(graph), Options())))
    assert page.inner_text("#findings-title") == "2 findings"
    page.locator(".finding").first.click()
    assert page.evaluate("gradviz.facts.nodeOf(gradviz.app.selected)") == len(graph.nodes) // 2
    assert "it</b> was modified" in page.inner_text("#panel")
    page.locator(".why summary").first.click()
    assert "clone it" in page.inner_text("#findings")
    assert page.inner_text(".why .code") == "3 | h.add_(1)  # <b>"
    assert "it cannot be known [after]" in page.inner_text("#findings")
    marked = page.evaluate("gradviz.facts.marks.map(mark => mark.number)")
    assert marked == [1, 2]
    page.close()


@pytest.mark.slow
def test_a_difference_shows_both_versions(read: Callable[[str], Any]) -> None:
    before, after = blocks(4), blocks(6)
    found = diff(before, after)
    page = read("".join(render_difference(found, Options())))
    assert page.input_value("#overlay") == "diff"
    kinds = page.evaluate("Array.from(gradviz.facts.c.diff)")
    assert kinds.count(1) == len(found.added) and kinds.count(2) == len(found.removed)
    assert sum(kind == 3 for kind in kinds) == len(found.changed)
    edges = page.evaluate("gradviz.facts.head.edgeDiff")
    assert sum(kind == 1 for _, kind in edges) == len(found.added_edges)
    assert sum(kind == 2 for _, kind in edges) == len(found.removed_edges)
    page.close()


def test_a_difference_that_goes_in_a_circle() -> None:
    """Two versions that compute the same ops in the other order."""
    before = chain(3)
    after = replace(before, edges=(Edge(0, 2, 0, 0), Edge(1, 3, 0, 0), Edge(2, 1, 0, 0)))
    assert "".join(render_difference(diff(before, after), Options())).startswith("<!doctype html>")


@pytest.mark.parametrize("name", ["diamond", "everything", "odd_names"])
def test_a_notebook_shows_the_page_in_a_frame(name: str) -> None:
    shown = gradviz.show(GRAPHS[name], height=300, theme="dark")._repr_html_()
    style, _, frame = shown.partition("</style>")
    assert style.startswith("<style>") and style.count("<") == 1
    assert frame.count("<") == 2  # nothing but the frame itself
    inner = html.unescape(frame.split('srcdoc="')[1].split('"')[0])
    assert inner.startswith("<!doctype html>") and 'data-theme="dark"' in inner
