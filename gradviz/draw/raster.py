"""PNG and PDF: the same geometry as the SVG, painted by Graphviz in a typeface that
comes with gradviz.

Without Graphviz there is neither; SVG needs none. What is too large for a format is
refused before anything is painted, with advice. This module decides sizes; it knows no
graph.
"""

from __future__ import annotations

import math
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib import resources
from pathlib import Path
from zlib import crc32

import numpy as np

from gradviz.draw.dot import quote
from gradviz.draw.options import Options
from gradviz.draw.palette import BoxKind, Palette, border, dim, ground, palette
from gradviz.draw.picture import Picture, Sketch
from gradviz.draw.scene import FLOWS, LinkStyle
from gradviz.draw.typesetting import BOLD, SIZES, Block, Tone, Words
from gradviz.draw.wire_labels import SIZE as LABEL_SIZE
from gradviz.draw.wires import HEAD_LENGTH
from gradviz.errors import FormatError, GraphvizNotFound, LayoutError, OutputError
from gradviz.layout import Floats, Rect
from gradviz.layout.graphviz import run
from gradviz.stages import Stage

# points for one pixel: Graphviz rounds corners by 12 points, which are then our 5
# pixels
SCALE = 2.4
DPI = 72 / SCALE  # at which one of our pixels becomes one pixel
# em from the middle of a line, where Graphviz puts a text, down to its baseline
MIDDLE = 0.31
HEAD_SIZE = HEAD_LENGTH * SCALE / 10  # Graphviz's own arrowhead is 10 points long
LINE_STYLE: dict[LinkStyle, str] = {
    "data": "",
    "saved": ",dir=none,style=dashed",
    "cut": ",style=dashed",
}


def fixed_dot(image: Picture, colors: Palette, scale: float) -> Iterator[str]:
    """DOT for `dot -Knop2`, statement by statement. With `scale` 1, Graphviz paints one
    pixel, or point, for each of ours.
    """
    writer = _Statements(image.height, colors)
    yield (
        f'digraph {{\ngraph [pad=0,margin=0,outputorder=nodesfirst,bgcolor="{colors.background}",dpi={DPI * scale:.6g}];\n'
        f'node [label="",shape=box,fixedsize=shape,margin=0,penwidth={SCALE:g}];\n'
        f'edge [color="{colors.line}",penwidth={1.2 * SCALE:g},arrowsize={HEAD_SIZE:g}];\n'
    )

    for name, x, y in (("c0", 0.0, 0.0), ("c1", image.width, image.height)):
        # so that the page is as large as the picture
        yield f"{name} [shape=point,style=invis,width=0,height=0,{writer.at(x, y)}];\n"

    for i, frame in enumerate(image.frames):
        yield writer.rect(
            f"f{i}",
            frame.rect,
            ground(colors, frame.depth),
            colors.border,
            "rounded,filled",
        )
        for words in frame.words:  # which interrupt the border
            size = SIZES[words.tone]
            top, width = words.y - size, words.width + 4.0
            room = Rect(words.x - 2.0, top, width, size + 2.0)
            color = ground(colors, frame.depth)
            yield writer.rect(f"ft{i}", room, color, color, "filled")

    for i, block in enumerate(image.blocks):
        yield writer.block(f"n{i}", block)

    for i, block in enumerate(image.swatches):
        yield writer.block(f"s{i}", block)

    yield f'node [shape=none,height=0.01,fontname="{_FAMILY}"];\n'
    for i, (words, color, size) in enumerate(_texts(image, colors)):
        yield writer.text(f"t{i}", words, color, size)

    yield from writer.edges(image)
    yield "}\n"


def _texts(image: Picture, colors: Palette) -> Iterator[tuple[Words, str, float]]:
    """Every line of text with its colour and size."""
    for block in image.blocks:
        for words in block.words:
            yield words, _box_color(words.tone, block.kind, colors), SIZES[words.tone]

    titles = (words for frame in image.frames for words in frame.words)
    for words in (*image.words, *titles):
        color = colors.text if words.tone == "title" else colors.muted
        yield words, color, SIZES[words.tone]

    for words in image.wire_words:
        yield words, colors.muted, LABEL_SIZE


def _box_color(tone: Tone, kind: BoxKind, colors: Palette) -> str:
    if tone == "warning":
        return colors.warning
    return colors.text if tone in ("strong", "name") else dim(colors, kind)


class _Statements:
    """Statements in Graphviz's units: points, y upwards."""

    def __init__(self, height: float, colors: Palette) -> None:
        self.height, self.colors = height, colors

    def block(self, name: str, block: Block) -> str:
        edge = self.colors.warning if block.marked else border(self.colors, block.kind)
        if block.marked or block.kind == "ghost":
            style = "filled,dashed"
        elif block.words:
            style = "rounded,filled"
        else:
            style = "filled"

        fill = self.colors.fills[block.kind]
        return self.rect(name, block.rect, fill, edge, style)

    def rect(self, name: str, rect: Rect, fill: str, edge: str, style: str) -> str:
        place = self.at(rect.x + rect.width / 2, rect.y + rect.height / 2)
        size = f"width={_inches(rect.width)},height={_inches(rect.height)}"
        return f'{name} [style="{style}",fillcolor="{fill}",color="{edge}",{size},{place}];\n'

    def text(self, name: str, words: Words, color: str, size: float) -> str:
        middle = words.x if words.centred else words.x + words.width / 2
        bold = f',fontname="{_FAMILY} Bold"' if words.tone in BOLD else ""
        label = quote([words.text], left=not words.centred)
        look = f'label={label},fontcolor="{color}",fontsize={size * SCALE:.6g}{bold},width={_inches(words.width)}'
        return f"{name} [{look},{self.at(middle, words.y - MIDDLE * size)}];\n"

    def edges(self, image: Picture) -> Iterator[str]:
        starts = image.curves.starts.tolist()
        points = self._points(image.curves.points)
        heads = self._points(image.curves.heads[:, 0])
        necks = self._points(image.curves.heads[:, 1:].mean(axis=1))

        for i, link in enumerate(image.wires):
            path = points[starts[i] : starts[i + 1]]
            if path:
                if link.style in FLOWS:
                    place = f"e,{heads[i]} {' '.join(path[:-1])} {necks[i]}"
                else:
                    place = " ".join(path)
                yield f'n{link.source} -> n{link.target} [pos="{place}"{LINE_STYLE[link.style]}];\n'

    def at(self, x: float, y: float) -> str:
        return f'pos="{x * SCALE:.6g},{(self.height - y) * SCALE:.6g}"'

    def _points(self, points: Floats) -> list[str]:
        turned = np.column_stack([points[:, 0], self.height - points[:, 1]]) * SCALE
        return [f"{x:.1f},{y:.1f}" for x, y in turned.tolist()]


def _inches(length: float) -> str:
    return f"{length * SCALE / 72:.6g}"


PNG_SCALE = 2.0  # pixels of the file for one of the drawing, so that text is sharp
LEAST_PNG_SCALE = 0.75  # text of 8 pixels; below, nobody can read it
PNG_SIDE = 32_767  # pixels; the most that cairo, which Graphviz paints with, takes
PNG_PIXELS = 120_000_000  # 480 MB while it is painted
PDF_SCALE = 0.75  # points for one pixel, as browsers print
PDF_SIDE = 14_400  # points; the most that PDF readers must take
PAINT_SECONDS = 120.0

ADVICE = "Write SVG, which has no limit, or fold the graph to fewer boxes."
_PNG_HEAD = 33  # bytes: the signature, and the chunk that has the size of the picture
_TEXT = b"tEXtSoftware\0gradviz"
_PNG_MARK = struct.pack(">I", len(_TEXT) - 4) + _TEXT + struct.pack(">I", crc32(_TEXT))
_PDF_DATE = re.compile(rb"/(CreationDate|ModDate) \(D:\d{14}")


def render_png(sketch: Sketch, options: Options) -> bytes:
    """The graph as PNG. Raises FormatError when it is too large for one, LayoutError
    without Graphviz.
    """
    image = sketch.picture()
    scale = png_scale(image.width, image.height, options.scale)
    painted = paint(image, options, "png", scale)
    return painted[:_PNG_HEAD] + _PNG_MARK + painted[_PNG_HEAD:]


def render_pdf(sketch: Sketch, options: Options) -> bytes:
    """The graph as PDF on one page. Raises FormatError when it is too large for one,
    LayoutError without Graphviz.
    """
    image = sketch.picture()
    width, height = image.width * PDF_SCALE, image.height * PDF_SCALE
    if max(width, height) > PDF_SIDE:
        size = f"{math.ceil(width):,} x {math.ceil(height):,} points"
        raise FormatError(
            f"the picture is too large for PDF: {size}, and a page has at most {PDF_SIDE:,}. {ADVICE}"
        )
    painted = paint(image, options, "pdf", PDF_SCALE)
    return _PDF_DATE.sub(rb"/\1 (D:19700101000000", painted) + b"\n%gradviz\n"


def png_scale(width: float, height: float, asked: float | None = None) -> float:
    """Pixels of the file for one of the drawing. Raises FormatError when text would
    become too small to read, and when what is `asked` for has no room.
    """
    room = min(
        (PNG_SIDE - 1) / max(width, height, 1.0),
        math.sqrt(PNG_PIXELS / max(width * height, 1.0)),
    )

    if room < LEAST_PNG_SCALE:
        size = f"{math.ceil(width):,} x {math.ceil(height):,} pixels"
        raise FormatError(
            f"the picture is too large for PNG: {size}, and to stay readable it can have at most "
            f"{int(PNG_SIDE / LEAST_PNG_SCALE):,} a side and {int(PNG_PIXELS / LEAST_PNG_SCALE**2 / 1e6):,} million. {ADVICE}"
        )

    most = math.floor(room * 100) / 100
    if asked is not None and asked > most:
        raise FormatError(f"a PNG of this picture has a scale of at most {most:g}")
    return min(PNG_SCALE, most) if asked is None else asked


def paint(image: Picture, options: Options, format: str, scale: float) -> bytes:
    """The picture as Graphviz paints it. A theme that follows the reader's setting is
    light here.
    """
    colors = palette(options.theme)
    source = "".join(fixed_dot(image, colors, scale))

    try:
        with (
            Stage("paint", doing=f"waiting for Graphviz, at most {PAINT_SECONDS:g} s"),
            with_fonts() as fonts,
        ):
            return run(
                source,
                program="nop2",
                format=format,
                timeout=PAINT_SECONDS,
                environment=fonts,
            )
    except GraphvizNotFound as error:
        raise LayoutError(
            f"{format.upper()} is painted by Graphviz, and there is none here. Write SVG, which needs none, or install "
            "Graphviz: `pip install pygraphviz`, or https://graphviz.org/download."
        ) from error


# The typeface comes with gradviz, so that both formats have letters on a machine
# without any font. Graphviz finds fonts through fontconfig, which reads a file that an
# environment variable names. Ours adds these two to the fonts of the machine, which go
# on to serve for characters that the typeface lacks.

_FAMILY = "DejaVu Sans Condensed"
_FONTS = ("DejaVuSansCondensed.ttf", "DejaVuSansCondensed-Bold.ttf")
_CONFIGURATION = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
<dir>{folder}</dir>
<cachedir>{folder}</cachedir>
<include ignore_missing="yes">{machine}</include>
</fontconfig>
"""


@contextmanager
def with_fonts() -> Iterator[dict[str, str]]:
    """What to add to the environment of a Graphviz that paints letters; valid inside
    the block.

    The fonts are copied to a folder that is gone afterwards, because fontconfig writes
    beside the fonts that it finds, and into the cache that is named first: the
    machine's is used and left as it is. Where there is no fontconfig, as in the
    Graphviz of Windows, the variable does nothing. Raises OutputError where the folder
    has no room.
    """
    with tempfile.TemporaryDirectory(prefix="gradviz-") as folder:
        path, machine = Path(folder, "fonts.conf"), os.environ.get("FONTCONFIG_FILE")
        try:
            for name in _FONTS:
                Path(folder, name).write_bytes(
                    resources.files("gradviz.draw").joinpath("fonts", name).read_bytes()
                )
            # without a file of its own, the machine's is looked up where fontconfig
            # would
            text = _CONFIGURATION.format(
                folder=escape(folder), machine=escape(machine or path.name)
            )
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OutputError(
                f"cannot write temporary files to {folder!r}: {error.strerror or error}. "
                "Make room there, or set TMPDIR to another folder."
            ) from error

        yield {"FONTCONFIG_FILE": str(path)}
