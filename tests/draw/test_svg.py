from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradviz.draw.options import Options, Theme
from gradviz.draw.palette import DARK, LIGHT, BoxKind, Palette, dim
from gradviz.draw.svg import KINDS, escape, number, render, style_sheet, write
from gradviz.graph import Edge, Graph, Node, SourceLine
from gradviz.wording import visible
from tests.builders import GRAPHS, chain, odd_names
from tests.draw.column import drawn
from tests.drawn import sketch

SVG = "{http://www.w3.org/2000/svg}"


def svg(graph: Graph, theme: Theme = "auto", **options: object) -> str:
    return "".join(write(drawn(graph, **options), theme))  # type: ignore[arg-type]


def parsed(graph: Graph, **options: object) -> ElementTree.Element:
    return ElementTree.fromstring(svg(graph, **options).encode())  # type: ignore[arg-type]


def boxes(root: ElementTree.Element) -> list[ElementTree.Element]:
    """Groups of boxes with text, without the legend's squares."""
    return [g for g in root.iterfind(f"{SVG}g[@class='gv-b']/{SVG}g") if g.find(f"{SVG}text") is not None]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_box_line_and_text_of_the_picture_is_written(name: str) -> None:
    made = drawn(GRAPHS[name], saved=True)
    root = ElementTree.fromstring("".join(write(made, "auto")).encode())
    assert len(boxes(root)) == len(made.blocks)
    texts = Counter(element.text or "" for element in root.iter(f"{SVG}text"))
    expected = [words.text for block in made.blocks for words in block.words]
    expected += [words.text for frame in made.frames for words in frame.words]
    expected += [words.text for words in (*made.words, *made.wire_words)]
    assert texts == Counter(expected)
    curves = int((np.diff(made.curves.starts) > 0).sum())
    assert len(root.findall(f"{SVG}g[@class='gv-e']/{SVG}path")) == curves
    heads = "".join(path.attrib["d"] for path in root.findall(f"{SVG}path[@class='gv-h']"))
    assert heads.count("z") == sum(link.style == "data" for link in made.wires)


def test_the_root_has_a_size_and_is_accessible() -> None:
    made = drawn(GRAPHS["everything"])
    root = ElementTree.fromstring("".join(write(made, "auto")).encode())
    assert root.attrib["viewBox"] == f"0 0 {number(made.width)} {number(made.height)}"
    assert (root.attrib["width"], root.attrib["height"]) == (number(made.width), number(made.height))
    assert root.attrib["role"] == "img"
    ids = root.attrib["aria-labelledby"].split()
    named = {element.attrib["id"]: element.text for element in root if "id" in element.attrib}
    assert list(named) == ids and named[ids[0]] == "train.py:loss" and "1 backward function" in (named[ids[1]] or "")


def test_every_box_has_a_tooltip_with_its_facts() -> None:
    root = parsed(GRAPHS["everything"])
    tips = [box.findtext(f"{SVG}title") or "" for box in boxes(root)]
    assert all(tips)
    assert "sequence number: 5" in tips[0] and "custom function: Scale at ops.py:3" in tips[0]


def test_saved_tensors_have_lines_of_their_own() -> None:
    root = parsed(GRAPHS["everything"], saved=True)
    assert len(root.findall(f"{SVG}g[@class='gv-e']/{SVG}path[@class='gv-saved']")) == 3


# -- text ------------------------------------------------------------------------------------------------------------


def test_odd_names_make_well_formed_xml_without_foreign_elements() -> None:
    root = parsed(odd_names(), saved=True)
    assert {element.tag for element in root.iter()} == {
        SVG + tag for tag in ("svg", "title", "desc", "style", "rect", "g", "path", "text")
    }
    shown = {element.text for element in root.iter(f"{SVG}text")}
    assert {"<lambda>", "</script>", 'say "hi"', "two\\nlines\\r\\n", "\\udc80", "#35;&amp;]]>"} <= shown


@settings(max_examples=100)
@given(st.text(st.characters(), max_size=30))
def test_any_text_survives_as_text_or_as_its_escape(text: str) -> None:
    element = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>'.encode())
    assert (element.text or "") == visible(text, keep="\n")
    assert element.attrib["b"] == visible(text, keep="\n").replace("\n", " ")  # as XML reads an attribute


def test_letters_of_unmeasured_scripts_keep_to_their_room() -> None:
    root = parsed(Graph(nodes=(Node(0, "שלום"), Node(1, "漢字"))))
    lengths = [box.find(f"{SVG}text").attrib.get("textLength") for box in boxes(root)]  # type: ignore[union-attr]
    assert lengths[0] is not None and lengths[1] is None


# -- themes ----------------------------------------------------------------------------------------------------------


def test_a_theme_decides_the_colours() -> None:
    light, dark, auto = (svg(chain(2), theme) for theme in ("light", "dark", "auto"))
    assert LIGHT.background in light and DARK.background not in light and "prefers-color-scheme" not in light
    assert DARK.background in dark and LIGHT.background not in dark and "prefers-color-scheme" not in dark
    before, _, after = auto.partition("prefers-color-scheme:dark")
    assert LIGHT.fills["leaf"] in before and DARK.fills["leaf"] in after


def test_tooltips_have_no_folder_of_the_machine() -> None:
    line = SourceLine("/home/ann/project/train.py", 3, text="y = x.exp()")
    graph = Graph((Node(0, "ExpBackward0", source=line),))
    text = "".join(render(sketch(graph, Options()), Options()))
    assert "line: train.py:3" in text and "/home" not in text


@pytest.mark.parametrize("theme", ["light", "dark", "auto"])
def test_every_rule_is_scoped_to_its_picture(theme: Theme) -> None:
    for line in style_sheet("gv-0", theme).splitlines():
        selectors = line.partition("{")[0]
        assert line.startswith(("@media", "}")) or all(part.startswith(".gv-0") for part in selectors.split(","))


def test_pictures_of_one_page_have_scopes_of_their_own() -> None:
    written = [svg(graph, theme) for graph in (chain(2), chain(3)) for theme in ("light", "dark", "auto")]
    scopes = {found[1] for text in written if (found := re.search(r'class="(gv-[0-9a-f]{8})"', text))}
    assert len(scopes) == 6


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_text_stands_out(palette: Palette, kind: BoxKind) -> None:
    fill = palette.fills[kind]
    assert contrast(fill, palette.text) >= 6
    assert contrast(fill, dim(palette, kind)) >= 4.5
    assert contrast(palette.background, palette.muted) >= 4.5
    if kind not in ("output", "base", "saved"):  # the kinds that have flags
        assert contrast(fill, palette.warning) >= 4.5


def contrast(one: str, two: str) -> float:
    """Contrast ratio of WCAG 2.1, https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio."""
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


# -- size ------------------------------------------------------------------------------------------------------------


def test_the_same_graph_gives_the_same_bytes() -> None:
    assert svg(GRAPHS["random"]) == svg(GRAPHS["random"])


def test_only_what_does_not_fit_is_told_in_tooltips_of_huge_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradviz.draw.picture.MAX_TOOLTIPS", 3)
    graph = chain(5)
    nodes = (graph.nodes[0]._replace(op="Long" * 20), *graph.nodes[1:])
    root = parsed(Graph(nodes, graph.edges, graph.leaves, graph.roots))
    told = [box.findtext(f"{SVG}title") for box in boxes(root)]
    assert [tip is not None for tip in told] == [True] + [False] * 6


def test_a_name_of_a_million_letters_is_cut_in_tooltips() -> None:
    nodes = Node(0, "AddBackward0", names=("n" * 1_000_000,)), Node(1, "MulBackward0")
    assert len(svg(Graph(nodes, (Edge(0, 1, 0, 0),)))) < 100_000
