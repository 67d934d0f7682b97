"""Drawings with frames: the content of every frame is placed on its own, the innermost
first, and the frame is then one box in the drawing around it.

All frames of one depth are one sheet. A title stands on the upper border, beside the
edges that enter there; where they leave no room, the frame gets wider at one end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np

from gradviz.layout import Drawing, Floats, Ints, Rect
from gradviz.layout.layered.grouping import by_key, places, starts_of
from gradviz.layout.layered.halves import BORDER, LEFT, RIGHT, HalfLine, place_halves
from gradviz.layout.layered.layers import BOTTOM, FREE, TOP, Levels, Sheet, no_levels
from gradviz.layout.layered.nesting import Hierarchy, build_hierarchy, frame_tree
from gradviz.layout.layered.ranks import neighbours, stream_order
from gradviz.layout.layered.routes import Routes, joined, reversed_routes
from gradviz.layout.layered.sheets import PHASES, SheetPlacement, place_sheet
from gradviz.layout.layered.u_shapes import UShape
from gradviz.stages import phase

TITLE_ROOM = 10.0  # px between a title and an edge beside it, or a corner
TITLE_DEPTH = 4.0  # px of a title below the border that it stands on


def place_with_frames(
    drawing: Drawing, shapes: Sequence[UShape] = ()
) -> tuple[SheetPlacement, tuple[Rect, ...]]:
    """Place boxes and the frames around them; `shapes` are drawn as a U. Edges must be
    distinct.
    """
    rank = stream_order(neighbours(drawing.size, *drawing.edges.T))
    tree = frame_tree(drawing.frame_of, drawing.frames)
    kept = np.ones(len(drawing.edges), np.bool_)
    for shape in shapes:
        kept[shape.skips] = False

    hierarchy = build_hierarchy(tree, drawing.edges[kept], rank)
    placer = _Placer(hierarchy, drawing, shapes)

    deepest = int(tree.depth.max())
    phase("modules", of=PHASES * (deepest + 1) + 3)
    # from the inside out: a frame is placed as a box, so its size must be known
    for depth in range(deepest, -1, -1):
        placer.place_level(depth)

    placed, frames = placer.on_page()
    every = np.arange(hierarchy.edges)
    routes = joined(placed.routes, np.flatnonzero(kept), every, len(kept))
    return placed._replace(routes=routes), frames


class _Placer:
    """Collects what is known of nodes and segments, level by level. Until `on_page`,
    places count from their frame.
    """

    def __init__(
        self, hierarchy: Hierarchy, drawing: Drawing, shapes: Sequence[UShape]
    ) -> None:
        self.hierarchy, self.drawing, self.tree = hierarchy, drawing, hierarchy.tree
        nodes, self.boxes = len(hierarchy.home), drawing.size
        self.page = hierarchy.tree.page
        self.size, self.middle = np.zeros((2, nodes, 2))
        self.size[: self.boxes] = np.column_stack((drawing.widths, drawing.heights))
        self.words = np.zeros(nodes)
        self.words[: self.boxes] = drawing.words if len(drawing.words) else 0.0
        frames = drawing.frames
        self.title = np.array([frame.title for frame in frames])
        self.side = np.array([frame.side for frame in frames])
        self.inset = np.zeros((self.page + 1, 2))
        # a port of -1 has offset 0
        self.port_offset = np.zeros(nodes - self.boxes - self.page + 1)
        self.placed: list[tuple[Ints, Routes]] = []  # segments and their routes
        self.page_size = np.zeros((1, 2))

        # the border of a half is not drawn
        self.is_half = np.zeros(self.page + 1, np.bool_)
        # right halves are upside down, with all frames in them
        self.mirrored = np.zeros(self.page + 1, np.bool_)
        for shape in shapes:
            self.is_half[[shape.left, shape.right]] = True
            self.mirrored[shape.right] = True
        for frame in np.argsort(self.tree.depth[:-1], kind="stable").tolist():
            self.mirrored[frame] |= self.mirrored[self.tree.home[self.boxes + frame]]

        self.shapes = {shape.frame: shape for shape in shapes}
        self.levels = no_levels(nodes)
        for shape in shapes:
            # next to the channel, in their own row and in the frames in which they lie
            for left, right in self._skip_ends(shape):
                self.levels.side[left], self.levels.side[right] = 1, -1

    def place_level(self, depth: int) -> None:
        """Place the contents of all frames of one depth."""
        level = np.flatnonzero(self.tree.depth == depth).tolist()
        for frame in level:
            if frame in self.shapes:
                self._place_halves(self.shapes[frame])
        frames = np.array([f for f in level if f not in self.shapes], np.int64)
        if not len(frames):
            return
        home, segment = self.hierarchy.home, self.hierarchy.segments
        local, part = np.zeros_like(home), np.full(self.page + 1, -1)
        part[frames] = np.arange(len(frames))
        members = np.flatnonzero(part[home] >= 0)
        # an edge through frames is cut at each border, and each piece placed in its
        # frame
        segments = np.flatnonzero(part[segment.frame] >= 0)
        local[members] = np.arange(len(members))
        placed = place_sheet(
            Sheet(
                widths=self.size[members, 0],
                heights=self.size[members, 1],
                above=local[segment.upper[segments]],
                below=local[segment.lower[segments]],
                above_offset=self.port_offset[segment.upper_port[segments]],
                below_offset=self.port_offset[segment.lower_port[segments]],
                part=part[home[members]],
                parts=len(frames),
                pin=self.hierarchy.pin[members],
                gap=self.drawing.gap,
                rank_gap=self.drawing.rank_gap,
                words=self.words[members],
                levels=self._levels(members, local),
                columns=self.drawing.columns and not self.shapes,
            )
        )
        self.middle[members] = placed.middles
        self.placed.append((segments, placed.routes))
        self._size_frames(frames, placed.sizes)

    def _place_halves(self, shape: UShape) -> None:
        """Place the two halves of a U, whose contents are placed."""
        halves = [self.boxes + shape.left, self.boxes + shape.right]
        left, right = self._skip_ends(shape)[0]
        # the right half is upside down
        drop = self._below([*left, halves[0]]) + self._below([*right, halves[1]])
        segment = self.hierarchy.segments
        segments = np.flatnonzero(segment.frame == shape.frame)
        upper, lower = segment.upper[segments], segment.lower[segments]
        half_of = np.full(len(self.middle), BORDER)
        half_of[halves] = LEFT, RIGHT
        columns = (
            half_of[upper],
            half_of[lower],
            self.port_offset[segment.upper_port[segments]],
            self.port_offset[segment.lower_port[segments]],
            upper,
        )
        lines = [
            HalfLine(*row) for row in zip(*(column.tolist() for column in columns))
        ]
        gap, rank_gap = self.drawing.gap, self.drawing.rank_gap
        placed = place_halves(self.size[halves], drop, lines, gap, rank_gap)
        points, starts = placed.routes
        # ports stand where lines begin and end, and halves in their middles
        self.middle[upper], self.middle[lower] = (
            points[starts[:-1]],
            points[starts[1:] - 1],
        )
        self.middle[halves] = placed.middles
        self.placed.append((segments, placed.routes))
        self._size_frames(np.array([shape.frame]), placed.size[None])

    def _levels(self, members: Ints, local: Ints) -> Levels:
        """What a sheet of these nodes has of level lines; `local` are their numbers in it."""
        inside = set(members.tolist())
        ends: list[Ints] = []
        for shape in self.shapes.values():
            skips = self._skip_ends(shape)
            if skips[0][0][-1] not in inside:
                continue
            for items in chain.from_iterable(skips):
                self.levels.offset[items[-1]] = self._below(items)
            pairs = [(left[-1], right[-1]) for left, right in skips]
            ends.append(local[np.array(pairs)])
        side, offset, _ = self.levels
        return Levels(side[members], offset[members], ends)

    def _skip_ends(self, shape: UShape) -> list[tuple[list[int], list[int]]]:
        """For each skip the boxes that it joins, and the frames around each up to its
        half.
        """
        skips = self.drawing.edges[shape.skips].tolist()
        halves = shape.left, shape.right
        return [
            (self._items(box, halves[0]), self._items(other, halves[1]))
            for box, other in skips
        ]

    def _items(self, box: int, frame: int) -> list[int]:
        """A box and the frames around it, up to the one that lies right in `frame`."""
        items = [box]
        while self.tree.home[items[-1]] != frame:
            items.append(self.boxes + int(self.tree.home[items[-1]]))
        return items

    def _below(self, items: list[int]) -> float:
        """How far the middle of the first lies below that of the last."""
        offset = 0.0
        for item, around in pairwise(items):
            offset += self.inset[around - self.boxes, 1]
            offset += self.middle[item, 1] - self.size[around, 1] / 2
        return offset

    def _size_frames(self, frames: Ints, contents: Floats) -> None:
        """Sizes of frames from their contents, and where their ports are."""
        if frames[0] == self.page:  # which has no border
            self.page_size = contents
            return
        home, pin, gap = self.hierarchy.home, self.hierarchy.pin, self.drawing.gap
        is_inside = np.zeros(self.page + 1, np.bool_)
        is_inside[frames] = True
        members = np.flatnonzero(is_inside[home] & (pin != FREE))
        mirrored = self.mirrored[home[members]]
        upper = np.where(mirrored, BOTTOM, TOP)
        ports = members[pin[members] == upper]
        widths, heights = contents.T
        left, right = self._beside_title(frames, widths, ports)
        above = np.where(self.mirrored[frames], 0.0, TITLE_DEPTH) + gap / 2
        tall = np.maximum(heights + gap, self.side[frames]) + TITLE_DEPTH
        has_border = ~self.is_half[frames]
        left, right, above = (edge * has_border for edge in (left, right, above))
        tall = np.where(has_border, tall, heights)
        self.inset[frames] = np.column_stack((left, above))
        node = self.boxes + frames
        self.size[node] = np.column_stack((left + widths + right, tall))
        # the next level outwards continues the lines from here
        inside = home[members]
        self.port_offset[members - self.boxes - self.page] = (
            self.middle[members, 0]
            + self.inset[inside, 0]
            - self.size[self.boxes + inside, 0] / 2
        )

    def _beside_title(
        self, frames: Ints, widths: Floats, ports: Ints
    ) -> tuple[Floats, Floats]:
        """What lies left and right of the contents of frames, so that a title has room
        beside the edges that enter at `ports`.
        """
        gap, home = self.drawing.gap, self.hierarchy.home[ports]
        every, x = self.page + 1, self.middle[ports, 0]
        first = by_key(np.minimum, x, home, every, np.inf)[frames]
        last = by_key(np.maximum, x, home, every, -np.inf)[frames]
        before, after = gap + first, gap + widths - last
        free = np.maximum(before, after)
        # a frame without an entry has one free stretch, which is all of its width
        free = np.where(np.isinf(free), widths + 2 * gap, free)
        title = self.title[frames]
        lack = np.maximum(title + 2 * TITLE_ROOM - free, 0.0) * (title > 0)
        at_left = np.where(before > after, lack, 0.0)
        return gap + at_left, gap + lack - at_left

    def on_page(self) -> tuple[SheetPlacement, tuple[Rect, ...]]:
        """Everything in the coordinates of the page, and the frames there."""
        # a point of a frame's content is at origin + sign * point
        origin, sign = np.zeros_like(self.inset), np.ones_like(self.inset)
        sign[self.mirrored, 1] = -1.0
        corner = np.zeros_like(self.inset)
        # outer frames first
        for depth in range(1, int(self.tree.depth.max()) + 1):
            frames = np.flatnonzero(self.tree.depth == depth)
            node = self.boxes + frames
            outer, size, inset = (
                self.tree.home[node],
                self.size[node],
                self.inset[frames],
            )
            middle = sign[outer] * self.middle[node] + origin[outer]
            corner[frames] = middle - size / 2
            upright = sign[frames] > 0
            origin[frames] = corner[frames] + np.where(upright, inset, size - inset)

        home = self.tree.home[: self.boxes]
        middles = sign[home] * self.middle[: self.boxes] + origin[home]
        sizes = self.size[self.boxes : self.boxes + self.page]
        rects = np.column_stack((corner[:-1], sizes)).tolist()
        placed = SheetPlacement(middles, self._routes(origin, sign), self.page_size)
        return placed, tuple(Rect(*rect) for rect in rects)

    def _routes(self, origin: Floats, sign: Floats) -> Routes:
        """Routes of the edges from those of their segments."""
        segment = self.hierarchy.segments
        order = np.concatenate([segments for segments, _ in self.placed])
        parts = [routes for _, routes in self.placed]
        sizes = np.concatenate([np.diff(routes.starts) for routes in parts])
        points = np.concatenate([routes.points for routes in parts])
        frame = np.repeat(segment.frame[order], sizes)
        points = sign[frame] * points + origin[frame]
        routes = joined(
            Routes(points, starts_of(sizes)),
            self.hierarchy.step_edge,
            places(order)[self.hierarchy.step_segment],
            self.hierarchy.edges,
        )
        # edges that were turned round, so that no circle was left, run upwards again
        return reversed_routes(routes, self.hierarchy.upwards)
