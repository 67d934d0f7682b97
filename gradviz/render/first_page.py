"""The page that a first picture has to fit, and the folded graph whose picture does.

Measures by drawing: no estimate knows how wide a layout will be. This module joins the folding and the picture; it knows neither
how anything is folded nor how it is drawn.
"""

from __future__ import annotations

from gradviz.analysis.fold import fold
from gradviz.errors import LayoutError
from gradviz.graph import Graph
from gradviz.render.options import Options
from gradviz.render.picture import size
from gradviz.render.scene import scene

WIDTH, HEIGHT = 2000, 2600
"""Pixels of a first picture at most, and across the flow of data when that runs sideways: about two screens."""
MOST_TO_MEASURE = 400
"""Boxes above which a picture is too large without a measurement: so many of the smallest ones cover the page."""


def folded(graph: Graph, options: Options) -> Graph:
    """The graph that the options ask for; by default, one whose picture fits the page."""
    return fold(
        graph,
        depth=options.depth,
        focus=options.focus,
        expand=options.expand,
        holds=lambda one: is_on_page(one, options),
    )


def is_on_page(graph: Graph, options: Options) -> bool:
    """Whether the picture of this graph, drawn as it is, fits the page; True where nothing can place it."""
    if len(graph.nodes) > MOST_TO_MEASURE:
        return False
    drawn = scene(graph, options)
    if len(drawn.boxes) > MOST_TO_MEASURE:
        return False
    try:
        width, height = size(drawn, options)
    except LayoutError:
        return True  # whoever draws it says why
    if options.direction in ("left", "right"):
        width, height = height, width
    return width <= WIDTH and height <= HEIGHT
