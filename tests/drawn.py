"""What is drawn of a graph, or of a cut that a test made: a graph is drawn as it is, or as the test folded it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradviz.draw import details as of_details, heat, summary
from gradviz.draw.options import Options
from gradviz.draw.output import sketched
from gradviz.draw.picture import Picture, Sketch
from gradviz.draw.scene import Scene
from gradviz.fold.folding import Folding, folding_of
from gradviz.graph import Graph


def folding(drawn: Graph | Folding) -> Folding:
    return folding_of(drawn) if isinstance(drawn, Graph) else drawn


def shown(graph: Graph, options: Options, crop: bool = False) -> Folding:
    """What a picture shows of a graph."""
    return sketched(graph, options, crop).folding


def sketch(drawn: Graph | Folding, options: Options) -> Sketch:
    return Sketch(folding(drawn), options)


def scene(drawn: Graph | Folding, options: Options) -> Scene:
    return sketch(drawn, options).scene


def picture(drawn: Graph | Folding, options: Options) -> Picture:
    return sketch(drawn, options).picture()


def details(drawn: Graph | Folding, about: Any) -> tuple[tuple[str, str], ...]:
    return of_details.details(folding(drawn), about)


def footer_lines(drawn: Graph | Folding) -> Iterator[str]:
    return summary.footer_lines(folding(drawn))


def held_by_box(drawn: Graph | Folding) -> tuple[int, ...]:
    return heat.held_by_box(folding(drawn))
