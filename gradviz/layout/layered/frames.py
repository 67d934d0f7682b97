"""Drawings with frames: the content of every frame is placed on its own, the innermost
first, and the frame is then one box in the drawing around it.

All frames of one depth are one sheet. A title stands on the upper border, beside the
edges that enter there; where they leave no room, the frame gets wider at one end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Drawing, Floats, Ints, LayoutFrame
from gradviz.layout.layered.columns import STUMP
from gradviz.layout.layered.geometry import Geometry
from gradviz.layout.layered.grouping import by_key, is_among, places
from gradviz.layout.layered.halves import Halves, skip_lines
from gradviz.layout.layered.neighbours import Neighbours, stream_order
from gradviz.layout.layered.nesting import Hierarchy, build_hierarchy, frame_tree
from gradviz.layout.layered.pipeline import PHASES, place_sheet
from gradviz.layout.layered.routes import TURN, Routes, concatenated, joined
from gradviz.layout.layered.sheet import BOTTOM, TOP, Sheet
from gradviz.layout.layered.u_shapes import UShape
from gradviz.stages import phase

TITLE_ROOM = 10.0  # px between a title and an edge beside it, or a corner
TITLE_DEPTH = 4.0  # px of a title below the border that it stands on


class FramedPlacement(NamedTuple):
    """Where boxes, the page and frames went, in this order, and the routes of edges."""

    middles: Floats  # (nodes, 2)
    sizes: Floats  # (nodes, 2)
    routes: Routes


def place_with_frames(drawing: Drawing, shapes: Sequence[UShape]) -> FramedPlacement:
    """Place boxes and the frames around them; `shapes` are drawn as a U. Edges must be
    distinct.
    """
    edges = np.arange(len(drawing.edges))
    skips = np.concatenate([edges[:0], *(shape.skips for shape in shapes)])
    others = np.delete(edges, skips)
    rank = stream_order(Neighbours(drawing.size, *drawing.edges.T))
    tree = frame_tree(drawing.frame_of, drawing.frames)
    hierarchy = build_hierarchy(tree, drawing.edges[others], rank)
    placer = _Placer(drawing, hierarchy, shapes)
    placer.place_levels()
    if not shapes and placer.geometry.size[tree.page, 1] > drawing.room:
        placer.share_room()
        placer.place_levels()

    middles, routes = placer.geometry.on_page(placer.is_mirrored)
    lines = skip_lines(drawing.edges[skips], middles, drawing.widths)
    pieces = places(np.append(others, skips))
    routes = joined(concatenated([routes, lines]), edges, pieces, len(edges))
    return FramedPlacement(middles, placer.geometry.size[: len(middles)], routes)


class _Placer:
    """Places the contents of frames, level by level."""

    def __init__(
        self, drawing: Drawing, hierarchy: Hierarchy, shapes: Sequence[UShape]
    ) -> None:
        self.drawing, self.hierarchy = drawing, hierarchy
        self.geometry = Geometry(drawing, hierarchy)
        nodes, tree = len(hierarchy.home), hierarchy.tree
        # heights above which contents of frames stand in columns
        self.rooms = None
        if drawing.columns and not shapes:
            self.rooms = np.full(nodes, np.inf)
        self.words = np.zeros(nodes)
        self.words[: len(drawing.words)] = drawing.words
        frames = [LayoutFrame(None, 0.0), *drawing.frames]  # the page is the first
        self.titles = np.array([frame.title for frame in frames])
        self.least_heights = np.array([frame.side for frame in frames])

        # of the page and of halves no border is drawn
        self.has_border = np.ones(nodes, np.bool_)
        self.has_border[tree.page] = False
        self.is_mirrored = np.zeros(nodes, np.bool_)
        self.side = np.zeros(nodes, np.int64)
        self.halves: dict[int, Halves] = {}  # by the frame that they fill
        for shape in shapes:
            self._add_halves(shape)
        # right halves are upside down, with all frames in them
        for level in tree.levels()[1:]:
            self.is_mirrored[level] |= self.is_mirrored[tree.home[level]]

    def _add_halves(self, shape: UShape) -> None:
        """Let a frame be drawn as a U."""
        skips = self.drawing.edges[shape.skips]
        halves = self.halves[shape.frame] = Halves(shape, skips, self.geometry)
        self.has_border[[shape.left, shape.right]] = False
        self.is_mirrored[shape.right] = True
        # next to the channel, in their own row and in the frames in which they lie
        for left, right in zip(halves.left_ways, halves.right_ways):
            self.side[left], self.side[right] = 1, -1

    def place_levels(self) -> None:
        """Place everything from the inside out: a frame is placed as a box, so its size
        must be known.
        """
        levels = self.hierarchy.tree.levels()
        phase("modules", of=PHASES * len(levels) + 3)
        for frames in reversed(levels):
            self.place_level(frames)

    def share_room(self) -> None:
        """Begin anew, with room for the contents of each frame, so that all is no taller
        than the drawing may be. What stands before a frame, and after it, gets a column
        of its own, or its height where that is too little for one.
        """
        tree, border = self.hierarchy.tree, self.drawing.gap + TITLE_DEPTH
        size, middle = self.geometry.size[:, 1], self.geometry.middle[:, 1]
        self.rooms = np.full(len(size), self.drawing.room)
        for frames in tree.levels()[1:]:
            around, height = tree.home[frames], size[frames]
            outer = size[around] - border * self.has_border[around]
            room, before = self.rooms[around], middle[frames] - height / 2
            sides = np.array([before, outer - before - height])
            taken = np.where(sides < STUMP * room, sides, TURN).sum(axis=0)
            self.rooms[frames] = np.where(outer > room, room - taken - border, np.inf)
        self.geometry = Geometry(self.drawing, self.hierarchy)

    def place_level(self, frames: Ints) -> None:
        """Place the contents of these frames, which are all of one depth."""
        is_u = is_among(frames, list(self.halves), len(self.hierarchy.home))
        gap, rank_gap = self.drawing.gap, self.drawing.rank_gap
        for frame in frames[is_u]:
            size = self.halves[int(frame)].place(gap, rank_gap)
            self._close(frame[None], size[None])
        if not is_u.all():
            self._place_contents(frames[~is_u])

    def _place_contents(self, frames: Ints) -> None:
        """Place the contents of frames on one sheet."""
        hierarchy, geometry = self.hierarchy, self.geometry
        nodes = len(hierarchy.home)
        members = is_among(hierarchy.home, frames, nodes).nonzero()[0]
        # an edge through frames is cut at each border, and each piece placed in its
        # frame
        segments = is_among(hierarchy.segments.frame, frames, nodes).nonzero()[0]
        items, offsets = geometry.attachments(segments)
        above, below = np.searchsorted(members, items)
        shapes = [one for one in self.halves.values() if one.shape.left in frames]
        placed = place_sheet(
            Sheet(
                widths=geometry.size[members, 0],
                heights=geometry.size[members, 1],
                above=above,
                below=below,
                above_offset=offsets[0],
                below_offset=offsets[1],
                part=np.searchsorted(frames, hierarchy.home[members]),
                parts=len(frames),
                pin=hierarchy.pin[members],
                side=self.side[members],
                gap=self.drawing.gap,
                rank_gap=self.drawing.rank_gap,
                words=self.words[members],
                skips=[one.skips_on(members) for one in shapes],
                rooms=None if self.rooms is None else self.rooms[frames],
            )
        )
        geometry.middle[members] = placed.middles
        geometry.add_routes(segments, placed.routes)
        self._close(frames, placed.sizes)

    def _close(self, frames: Ints, contents: Floats) -> None:
        """Draw borders around contents of these sizes."""
        geometry, gap = self.geometry, self.drawing.gap
        number = frames - self.hierarchy.tree.page
        widths, heights = contents.T
        left, right = self._beside_title(frames, widths, self.titles[number])
        above = np.where(self.is_mirrored[frames], 0.0, TITLE_DEPTH) + gap / 2
        high = np.maximum(heights + gap, self.least_heights[number]) + TITLE_DEPTH
        inset = np.column_stack((left, above))
        size = np.column_stack((left + widths + right, high))
        has_border = self.has_border[frames, None]
        geometry.inset[frames] = np.where(has_border, inset, 0.0)
        geometry.size[frames] = np.where(has_border, size, contents)

    def _beside_title(
        self, frames: Ints, widths: Floats, titles: Floats
    ) -> tuple[Floats, Floats]:
        """What lies left and right of the contents of frames, so that a title has room
        beside the edges that enter at the upper border.
        """
        home, gap = self.hierarchy.home, self.drawing.gap
        upper = np.where(self.is_mirrored[home], BOTTOM, TOP)
        is_entry = (self.hierarchy.pin == upper) & is_among(home, frames, len(home))
        x = self.geometry.middle[is_entry, 0]
        frame = np.searchsorted(frames, home[is_entry])
        first = by_key(np.minimum, x, frame, len(frames), np.inf)
        last = by_key(np.maximum, x, frame, len(frames), -np.inf)
        before, after = gap + first, gap + widths - last
        free = np.maximum(before, after)
        # a frame without an entry has one free stretch, which is all of its width
        free = np.where(np.isinf(free), widths + 2 * gap, free)
        lack = np.maximum(titles + 2 * TITLE_ROOM - free, 0.0) * (titles > 0)
        at_left = np.where(before > after, lack, 0.0)
        return gap + at_left, gap + lack - at_left
