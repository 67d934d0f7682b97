from __future__ import annotations

from xml.etree import ElementTree

import pytest

from gradviz import notebook
from gradviz.draw.picture import Sketch
from gradviz.errors import LayoutError
from gradviz.graph import Graph
from tests.builders import GRAPHS, chain
from tests.fold.test_fold import blocks


def test_a_notebook_gets_a_picture_and_text() -> None:
    shown = notebook.mimebundle(GRAPHS["diamond"])
    assert sorted({*shown, "text/html"}) == ["image/svg+xml", "text/html", "text/plain"]
    root = ElementTree.fromstring(shown["image/svg+xml"].encode())
    assert float(root.attrib["width"]) > 0 and float(root.attrib["height"]) > 0
    assert "max-width:100%" in root.attrib["style"]
    assert "AddBackward0" in shown["image/svg+xml"]
    assert shown["text/plain"] == notebook._text(GRAPHS["diamond"])


def test_the_graph_itself_offers_the_same() -> None:
    assert GRAPHS["diamond"]._repr_mimebundle_() == notebook.mimebundle(GRAPHS["diamond"])


def test_a_failure_warns_and_shows_marked_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LayoutError("no engine could place it")

    monkeypatch.setattr(Sketch, "picture", fail)
    with pytest.warns(RuntimeWarning, match="no engine could place it"):
        shown = notebook.mimebundle(chain(2))
    assert list(shown) == ["text/plain"]
    assert shown["text/plain"].startswith("[no picture: LayoutError: no engine could place it]")


def test_a_summary_that_fails_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Graph) -> str:
        raise RuntimeError("broken")

    monkeypatch.setattr(Graph, "__str__", fail)
    shown = notebook.mimebundle(chain(2))
    assert "image/svg+xml" in shown and shown["text/plain"] == "Graph with 3 nodes and 2 edges"


def test_a_huge_graph_is_not_put_into_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "MAX_NODES", 3)
    shown = notebook.mimebundle(chain(3))
    assert list(shown) == ["text/plain"]
    assert "4 nodes are too many" in shown["text/plain"] and "graph.save(" in shown["text/plain"]


def test_a_graph_that_the_caller_folded_is_shown_as_it_is() -> None:
    folded = blocks(12).fold(depth=1)
    shown = notebook.mimebundle(folded)["image/svg+xml"]
    assert "Net" in shown and "addmm" not in shown


def test_ctrl_c_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sketch, "picture", interrupt)
    with pytest.raises(KeyboardInterrupt):
        notebook.mimebundle(chain(2))
