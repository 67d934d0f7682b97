"""Drawings with frames: the content of every frame is placed on its own, the innermost
first, and the frame is then one box in the drawing around it.

All frames of one depth are one sheet. A title stands on the upper border, beside the
edges that enter there; where they leave no room, the frame gets wider at one end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gradviz.layout import Drawing, Floats, Ints, Rect
from gradviz.layout.layered.grouping import Mask, by_key, places, starts_of
from gradviz.layout.layered.layers import BOTTOM, FREE, TOP, Levels, Sheet, no_levels
from gradviz.layout.layered.nesting import Hierarchy, build_hierarchy, frame_tree
from gradviz.layout.layered.ranks import neighbours, stream_order
from gradviz.layout.layered.routes import Routes, joined, reversed_routes
from gradviz.layout.layered.sheets import PHASES, SheetPlacement, place_sheet
from gradviz.layout.layered.u_shapes import UShape
from gradviz.stages import phase

TITLE_ROOM = 10.0  # px between a title and an edge beside it, or a corner
TITLE_DEPTH = 4.0  # px of a title below the border that it stands on
TURN_STEP = 6.0  # px, half of what lies between two lines that turn


def place_with_frames(
    drawing: Drawing, shapes: Sequence[UShape] = ()
) -> tuple[SheetPlacement, tuple[Rect, ...]]:
    """Place boxes and the frames around them; `shapes` are drawn as a U. Edges must be
    distinct.
    """
    rank = stream_order(neighbours(drawing.size, *drawing.edges.T))
    tree = frame_tree(drawing.frame_of, drawing.frames)
    right = np.zeros(drawing.size + tree.page, np.bool_)
    kept = np.ones(len(drawing.edges), np.bool_)
    for shape in shapes:
        right[shape.right] = True
        kept[shape.skips] = False

    hierarchy = build_hierarchy(tree, drawing.edges[kept], rank, right)
    placer = _Placer(hierarchy, drawing, right)
    for shape in shapes:
        placer.add_u(shape)

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

    def __init__(self, hierarchy: Hierarchy, drawing: Drawing, right: Mask) -> None:
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

        # frames in the right half of a U are upside down, with all that is in them
        self.mirrored = np.append(right[self.boxes :], False)
        outermost_first = np.argsort(self.tree.depth[:-1], kind="stable")
        for frame in outermost_first.tolist():
            around = self.tree.home[self.boxes + frame]
            self.mirrored[frame] |= self.mirrored[around]
        self.levels = no_levels(nodes)
        self.skips: list[tuple[list[int], list[int]]] = []

    def add_u(self, shape: UShape) -> None:
        """Have what lies on a sheet drawn as a U."""
        side, turn, anchor, _ = self.levels
        home, pin = self.hierarchy.home, self.hierarchy.pin
        inside = np.flatnonzero(home == shape.frame)
        turn[inside] = self.hierarchy.turn[inside]
        is_left = (turn[inside] != BOTTOM) & (pin[inside] != BOTTOM)
        side[inside] = np.where(is_left, -2, 0)
        side[shape.right] = side[inside[turn[inside] == TOP]] = 2
        for end in (TOP, BOTTOM):
            turns = inside[turn[inside] == end]
            # what turns first turns outside the others
            anchor[turns] = end * TURN_STEP * np.arange(1 - len(turns), 1)

        for ends in self.drawing.edges[shape.skips].tolist():
            left, right = (self._items(box, shape.frame) for box in ends)
            # next to the channel, in its own row and in the frames in which it lies
            side[left], side[right] = 1, -1
            side[left[-1]], side[right[-1]] = -1, 1
            self.skips.append((left, right))

    def place_level(self, depth: int) -> None:
        """Place the contents of all frames of one depth."""
        frames = np.flatnonzero(self.tree.depth == depth)
        home, segment = self.hierarchy.home, self.hierarchy.segments
        members = np.flatnonzero(np.isin(home, frames))
        # an edge through frames is cut at each border, and each piece placed in its
        # frame
        segments = np.flatnonzero(np.isin(segment.frame, frames))
        local, part = np.zeros_like(home), np.zeros(self.page + 1, np.int64)
        local[members] = np.arange(len(members))
        part[frames] = np.arange(len(frames))
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
                columns=self.drawing.columns,
            )
        )
        self.middle[members] = placed.middles
        self.placed.append((segments, placed.routes))
        if depth:
            self._size_frames(frames, placed.sizes)
        else:
            self.page_size = placed.sizes  # the page itself has no frame

    def _levels(self, members: Ints, local: Ints) -> Levels:
        """What a sheet of these nodes has of a U; `local` are their numbers in it."""
        inside = set(members.tolist())
        side, turn, anchor, _ = self.levels
        pairs: list[tuple[int, int]] = []
        for left, right in self.skips:
            if left[-1] in inside:
                pairs.append((local[left[-1]], local[right[-1]]))
                anchor[left[-1]] = self._below(left)
                # what is in a frame of the right half is upside down
                anchor[right[-1]] = -self._below(right)
        rows = np.array(pairs, np.int64).reshape(-1, 2)
        return Levels(side[members], turn[members], anchor[members], rows)

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
        home, pin, gap = self.hierarchy.home, self.hierarchy.pin, self.drawing.gap
        members = np.flatnonzero(np.isin(home, frames) & (pin != FREE))
        mirrored = self.mirrored[home[members]]
        upper = np.where(mirrored, BOTTOM, TOP)
        ports = members[pin[members] == upper]
        widths, heights = contents.T
        left, right = self._beside_title(frames, widths, ports)
        self.inset[frames] = np.column_stack(
            (left, np.where(self.mirrored[frames], 0.0, TITLE_DEPTH) + gap / 2)
        )
        node = self.boxes + frames
        tall = np.maximum(heights + gap, self.side[frames]) + TITLE_DEPTH
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
        back = np.flatnonzero(segment.back[order])
        pieces = reversed_routes(Routes(points, starts_of(sizes)), back)
        routes = joined(
            pieces,
            self.hierarchy.step_edge,
            places(order)[self.hierarchy.step_segment],
            self.hierarchy.edges,
        )
        # edges that were turned round, so that no circle was left, run upwards again
        return reversed_routes(routes, self.hierarchy.upwards)
