from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradviz.draw import raster
from gradviz.draw.options import Options
from gradviz.draw.palette import DARK, LIGHT
from gradviz.draw.picture import Sketch
from gradviz.draw.raster import fixed_dot
from gradviz.errors import FormatError, GraphvizNotFound, LayoutError
from gradviz.graph import Graph, Node
from gradviz.layout import graphviz
from tests.builders import GRAPHS, chain, odd_names
from tests.draw.column import drawn
from tests.drawn import sketch

pytestmark = pytest.mark.slow

ENGINES = ("system", "bundled")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each Graphviz that is here, in turn."""
    monkeypatch.setenv(graphviz.VARIABLE, request.param)
    if graphviz.which() is None:
        pytest.skip(f"there is no {request.param} Graphviz here")
    return str(request.param)


@pytest.fixture
def column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures without a layout engine."""
    monkeypatch.setattr(Sketch, "picture", lambda sketch: drawn(sketch.folding, sketch.options.direction))


def png(graph: Graph, options: Options) -> bytes:
    return raster.render_png(sketch(graph, options), options)


def pdf(graph: Graph, options: Options) -> bytes:
    return raster.render_pdf(sketch(graph, options), options)


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Types and contents of a PNG's chunks, each checked against its checksum."""
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack(">I", png[at + 8 + length : at + 12 + length])
        assert zlib.crc32(kind + content) == checksum
        yield kind, content
        at += 12 + length


def png_size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    found = dict(chunks(png))
    assert b"IEND" in found
    width, height = struct.unpack(">II", found[b"IHDR"][:8])
    return width, height


@pytest.mark.usefixtures("column")
def test_a_png_has_two_pixels_for_each_of_the_drawing(engine: str) -> None:
    made = drawn(GRAPHS["diamond"])
    width, height = png_size(png(GRAPHS["diamond"], Options()))
    assert abs(width - 2 * made.width) <= 2 and abs(height - 2 * made.height) <= 2


@pytest.mark.usefixtures("column")
def test_a_pdf_has_the_size_that_browsers_print(engine: str) -> None:
    made = drawn(GRAPHS["diamond"])
    written = pdf(GRAPHS["diamond"], Options())
    assert written.startswith(b"%PDF-") and b"%%EOF" in written[-64:]
    found = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+)", written)
    assert found is not None
    assert abs(float(found[1]) - 0.75 * made.width) <= 2 and abs(float(found[2]) - 0.75 * made.height) <= 2


@pytest.mark.usefixtures("column")
@pytest.mark.parametrize("name", GRAPHS)
def test_every_kind_of_graph_can_be_painted(name: str) -> None:
    png_size(png(GRAPHS[name], Options()))


@pytest.mark.usefixtures("column")
def test_the_same_graph_gives_the_same_bytes(engine: str) -> None:
    for render in (png, pdf):
        assert render(GRAPHS["random"], Options()) == render(GRAPHS["random"], Options())


@pytest.mark.usefixtures("column")
def test_themes_differ_and_auto_is_light() -> None:
    light, dark, auto = (png(chain(1), Options(theme=t)) for t in ("light", "dark", "auto"))
    assert light == auto != dark


def placed(dot: str) -> dict[str, dict[str, str]]:
    """Nodes of Graphviz's own reading of the DOT, by name."""
    answer = graphviz.run(dot, program="nop2", format="json0")
    return {thing["name"]: thing for thing in json.loads(answer)["objects"]}


def test_graphviz_keeps_every_box_where_the_picture_has_it(engine: str) -> None:
    made = drawn(GRAPHS["random"])
    nodes = placed("".join(fixed_dot(made, LIGHT, 1.0)))
    for i, block in enumerate(made.blocks):
        x, y = (float(part) for part in nodes[f"n{i}"]["pos"].split(","))
        assert x / 2.4 == pytest.approx(block.rect.x + block.rect.width / 2, abs=0.3)
        assert made.height - y / 2.4 == pytest.approx(block.rect.y + block.rect.height / 2, abs=0.3)
        assert float(nodes[f"n{i}"]["width"]) * 72 / 2.4 == pytest.approx(block.rect.width, abs=0.3)


def test_odd_text_reaches_graphviz_unchanged() -> None:
    made = drawn(odd_names())
    nodes = placed("".join(fixed_dot(made, DARK, 1.0)))
    drawn_texts = [words.text for block in made.blocks for words in block.words]
    labels = [nodes[f"t{i}"]["label"] for i in range(len(drawn_texts))]
    assert [label.replace("\\\\", "\\").replace("&amp;", "&") for label in labels] == drawn_texts


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("column")
def test_a_large_png_is_painted_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raster, "PNG_SIDE", 540)
    assert max(png_size(png(chain(3), Options()))) <= 540


@pytest.mark.usefixtures("column")
def test_without_graphviz_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(graphviz.VARIABLE, "none")
    for render in (png, pdf):
        with pytest.raises(LayoutError, match=r"painted by Graphviz.*Write SVG.*pip install pygraphviz"):
            render(Graph(), Options())
    assert issubclass(GraphvizNotFound, LayoutError)


EMPTY = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><cachedir>{folder}</cachedir></fontconfig>
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the Graphviz of Windows knows no fontconfig")
@pytest.mark.parametrize("render", [png, pdf])
def test_there_are_letters_on_a_machine_without_fonts(
    render: Callable[[Graph, Options], bytes], engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = tmp_path / "none & <less>.conf"
    without.write_text(EMPTY.format(folder=tmp_path))
    monkeypatch.setenv("FONTCONFIG_FILE", str(without))
    source = 'digraph {{ a [label="{}", fontname="DejaVu Sans Mono"] }}'
    alone, other = (graphviz.run(source.format(label), program="neato", format="png") for label in ("ab", "cd"))
    assert alone == other  # Graphviz by itself has boxes for letters
    made, other = (render(Graph((Node(0, op),), ()), Options()) for op in ("AddBackward0", "MulBackward0"))
    assert made != other


@pytest.mark.skipif(sys.platform == "win32", reason="the Graphviz of Windows knows no fontconfig")
def test_neither_the_cache_of_the_machines_fonts_nor_our_folder_is_written_to(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    machine = tmp_path / "machine.conf"
    machine.write_text(EMPTY.format(folder=cache))
    monkeypatch.setenv("FONTCONFIG_FILE", str(machine))
    folder = Path(raster.__file__).with_name("fonts")
    before = sorted(path.name for path in folder.iterdir())
    png(chain(2), Options())
    assert not cache.exists() and sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.usefixtures("column")
def test_a_png_has_the_scale_that_was_asked_for(engine: str) -> None:
    made = drawn(GRAPHS["diamond"])
    width, height = png_size(png(GRAPHS["diamond"], Options(scale=3.5)))
    assert abs(width - 3.5 * made.width) <= 3 and abs(height - 3.5 * made.height) <= 3
    with pytest.raises(FormatError, match="at most"):
        raster.png_scale(10_000, 2_000, 20)
