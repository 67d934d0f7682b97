"""The boxes of a picture, each made when it is asked for.

A million boxes with their texts take more memory than the graph, and a writer needs one at a time. This module joins a
box of the scene, its size and its place; it knows no format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from gradviz.graph import Graph
from gradviz.layout.model import Floats, Rect
from gradviz.render.facts import facts
from gradviz.render.geometry import Block
from gradviz.render.options import LinkSource
from gradviz.render.scene import Box, subject
from gradviz.render.sizing import Sized, placed, tooltip
from gradviz.render.source_links import source_link

MAX_TOOLTIPS = 10_000  # boxes; above, only what does not fit its box has one


def tooltip_note(count: int) -> str:
    """What to say about tooltips that are left out of a picture of that many boxes."""
    return (
        f"tooltips only where text is shortened, since there are more than {MAX_TOOLTIPS:,} boxes"
        if count > MAX_TOOLTIPS
        else ""
    )


class Blocks(Sequence[Block]):
    """Block i is box i of the scene with its middle at (x[i], y[i])."""

    def __init__(
        self,
        graph: Graph,
        boxes: Sequence[Box],
        sizes: Sequence[Sized],
        x: Floats,
        y: Floats,
        link: LinkSource = "none",
    ) -> None:
        self._graph, self._boxes, self._sizes, self._x, self._y, self._link = graph, boxes, sizes, x, y, link

    def __len__(self) -> int:
        return len(self._boxes)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...
    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        box, size, rect = self._boxes[index], self._sizes[index], self._rect(index)
        told = size.cut or not tooltip_note(len(self._boxes))
        tip = tooltip(facts(self._graph, subject(self._graph, box))) if told else ""
        link = source_link(subject(self._graph, box), self._link) if self._link != "none" else ""
        return Block(rect, box.kind, placed(size, rect), tip, bool(box.flags), link)

    def rects(self) -> Iterator[Rect]:
        """The boxes without their texts."""
        return map(self._rect, range(len(self)))

    def _rect(self, i: int) -> Rect:
        size = self._sizes[i]
        x, y = float(self._x[i]), float(self._y[i])
        return Rect(x - size.width / 2, y - size.height / 2, size.width, size.height)
