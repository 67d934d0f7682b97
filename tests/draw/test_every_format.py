"""What holds for every text format, over every kind of graph."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradviz.draw.options import Options
from gradviz.draw.output import FORMATS, encode, pieces, render, save
from gradviz.graph import Graph
from gradviz.report.labels import op_title
from tests.builders import GRAPHS, odd_names

READ = ("dot", "txt", "md")
TEXT_FORMATS = (*READ, "graphml", "json")


def plain(text: str) -> str:
    """Text without what each format escapes, to look for names of letters and digits in."""
    return re.sub(r"&?#\d+;", "", text)


@pytest.mark.parametrize("format", TEXT_FORMATS)
@pytest.mark.parametrize("name", GRAPHS)
def test_it_draws_and_is_deterministic(format: str, name: str) -> None:
    first = render(GRAPHS[name], format)
    assert isinstance(first, str) and first.endswith("\n") and "\r" not in first
    assert render(GRAPHS[name], format) == first
    assert b"".join(pieces(GRAPHS[name], format)) == encode(first)


@pytest.mark.parametrize("format", TEXT_FORMATS)
@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "odd_names"])
def test_every_visible_node_and_leaf_is_mentioned(format: str, name: str) -> None:
    graph, text = (
        GRAPHS[name],
        plain(str(render(GRAPHS[name], format, Options(depth="all" if format in READ else "auto")))),
    )
    for node in graph.nodes:
        if node.id not in graph.leaf_of:
            usual = "variable" if format == "txt" else "forward"
            name = op_title(graph, node, names=usual).name if format in READ else node.op
            assert (node.group.title if node.group else name) in text
    for leaf in graph.leaves:
        assert all(one in text for one in leaf.names)


@pytest.mark.parametrize("format", TEXT_FORMATS)
def test_no_control_character_gets_through(format: str) -> None:
    text = str(render(odd_names(), format))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert not re.search("[\u200b\u200e\u202a-\u202e\u2066-\u2069\u3164\ufeff\U000e0000-\U000e007f]", text)


@pytest.mark.parametrize("format", TEXT_FORMATS)
def test_saving_writes_what_rendering_gives(format: str, tmp_path: Path) -> None:
    for suffix in FORMATS[format].suffixes:
        path = tmp_path / f"graph{suffix.upper()}"
        assert GRAPHS["diamond"].save(str(path)) == str(path)
        assert path.read_bytes() == encode(str(render(GRAPHS["diamond"], format)))


def test_saving_takes_options_and_another_format(tmp_path: Path) -> None:
    save(GRAPHS["diamond"], tmp_path / "x.graph", format="dot", force=True, direction="right")
    expected = render(GRAPHS["diamond"], "dot", Options(direction="right"))
    assert (tmp_path / "x.graph").read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("format", TEXT_FORMATS)
def test_the_empty_graph_is_drawn_as_such(format: str) -> None:
    text = str(render(Graph(), format))
    assert "0 backward functions" in text or format in ("json", "graphml")
