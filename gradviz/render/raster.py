"""PNG and PDF: the same geometry as the SVG, painted by Graphviz.

Without Graphviz there is neither; SVG needs none. What is too large for a format is refused before anything is painted,
with advice. This module decides sizes; it knows no graph.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from gradviz.errors import FormatError, GraphvizNotFound, LayoutError
from gradviz.graph import Graph
from gradviz.layout.graphviz import run
from gradviz.render.fixed_dot import fixed_dot
from gradviz.render.fonts import with_fonts
from gradviz.render.geometry import Picture
from gradviz.render.options import Options
from gradviz.render.page import lines_strip
from gradviz.render.palette import DARK, LIGHT
from gradviz.render.picture import MARGIN, picture
from gradviz.stages import Stage

PNG_SCALE = 2.0  # pixels of the file for one of the drawing, so that text is sharp
LEAST_PNG_SCALE = 0.75  # text of 8 pixels; below, nobody can read it
PNG_SIDE = 32_767  # pixels; the most that cairo, which Graphviz paints with, takes
PNG_PIXELS = 120_000_000  # 480 MB while it is painted
PDF_SCALE = 0.75  # points for one pixel, as browsers print
PDF_SIDE = 14_400  # points; the most that PDF readers must take
PAINT_SECONDS = 120.0

ADVICE = "Write SVG, which has no limit, or fold the graph to fewer boxes."
_PDF_DATE = re.compile(rb"/(CreationDate|ModDate) \(D:\d{14}")


def render_png(graph: Graph, options: Options) -> bytes:
    """The graph as PNG. Raises FormatError when it is too large for one, LayoutError without Graphviz."""
    made = picture(graph, options)
    scale = png_scale(made.width, made.height)
    if scale < PNG_SCALE:
        made = with_note(made, f"drawn at {scale:.2f} instead of {PNG_SCALE:g} pixels, since the picture is large")
    return paint(made, options, "png", scale)


def render_pdf(graph: Graph, options: Options) -> bytes:
    """The graph as PDF on one page. Raises FormatError when it is too large for one, LayoutError without Graphviz."""
    made = picture(graph, options)
    width, height = made.width * PDF_SCALE, made.height * PDF_SCALE
    if max(width, height) > PDF_SIDE:
        size = f"{math.ceil(width):,} x {math.ceil(height):,} points"
        raise FormatError(f"the picture is too large for PDF: {size}, and a page has at most {PDF_SIDE:,}. {ADVICE}")
    return _PDF_DATE.sub(rb"/\1 (D:19700101000000", paint(made, options, "pdf", PDF_SCALE))


def png_scale(width: float, height: float) -> float:
    """Pixels of the file for one of the drawing. Raises FormatError when text would become too small to read."""
    room = (PNG_SIDE - 1) / max(width, height, 1.0)
    room = min(room, math.sqrt(PNG_PIXELS / max(width * height, 1.0)))
    if room < LEAST_PNG_SCALE:
        size = f"{math.ceil(width):,} x {math.ceil(height):,} pixels"
        raise FormatError(
            f"the picture is too large for PNG: {size}, and to stay readable it can have at most "
            f"{int(PNG_SIDE / LEAST_PNG_SCALE):,} a side and {int(PNG_PIXELS / LEAST_PNG_SCALE**2 / 1e6):,} million. {ADVICE}"
        )
    return min(PNG_SCALE, math.floor(room * 100) / 100)


def with_note(made: Picture, note: str) -> Picture:
    """The picture with one more line under its footer."""
    strip = lines_strip([note], made.width - 2 * MARGIN).moved(MARGIN, made.height - MARGIN)
    return replace(made, words=made.words + strip.words, height=made.height + strip.height, notes=(*made.notes, note))


def paint(made: Picture, options: Options, format: str, scale: float) -> bytes:
    """The picture as Graphviz paints it. A theme that follows the reader's setting is light here."""
    colors = DARK if options.theme == "dark" else LIGHT
    source = "".join(fixed_dot(made, colors, scale))
    try:
        with Stage("paint", doing=f"waiting for Graphviz, at most {PAINT_SECONDS:g} s"), with_fonts() as fonts:
            return run(
                source, program="neato", format=format, arguments=("-n2",), timeout=PAINT_SECONDS, environment=fonts
            )
    except GraphvizNotFound as error:
        raise LayoutError(
            f"{format.upper()} is painted by Graphviz, and there is none here. Write SVG, which needs none, or install "
            "Graphviz: `pip install pygraphviz`, or https://graphviz.org/download."
        ) from error
