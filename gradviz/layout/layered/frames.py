"""Drawings with frames: the content of every frame is placed on its own, the innermost
first, and the frame is then one box in the drawing around it.

All frames of one depth are one sheet. Room is kept on top of each frame for its title,
at the upper left corner; edges enter to the right of it, so that none runs through the
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gradviz.layout import Drawing, Floats, Ints, Rect
from gradviz.layout.layered.beside import CHANNEL, NARROW, End, place_beside
from gradviz.layout.layered.grouping import Mask, by_key, places, starts_of
from gradviz.layout.layered.layers import BOTTOM, FREE, TOP, Level, Sheet
from gradviz.layout.layered.nesting import Hierarchy, build_hierarchy, frame_tree
from gradviz.layout.layered.ranks import neighbours, rank_nodes
from gradviz.layout.layered.routes import Routes, as_routes, joined, reversed_routes
from gradviz.layout.layered.sheets import PHASES, SheetPlacement, place_sheet
from gradviz.layout.layered.u_shapes import Halves
from gradviz.stages import phase

TITLE_ROOM = 6.0  # px between a title and the first edge beside it


def place_with_frames(
    drawing: Drawing, shapes: Sequence[Halves] = ()
) -> tuple[SheetPlacement, tuple[Rect, ...]]:
    """Place boxes and the frames around them; `shapes` are drawn as a U, and their
    skips get no routes. Edges must be distinct. Raises CycleError when they form a
    cycle.
    """
    kept = np.ones(len(drawing.edges), np.bool_)
    for shape in shapes:
        kept[shape.skips] = False

    edges = drawing.edges[kept]
    rank = rank_nodes(neighbours(drawing.size, *edges.T)).rank
    tree = frame_tree(drawing.frame_of, drawing.frames)
    left_on_top = np.zeros(len(drawing.frames) + 1, np.bool_)
    for shape in shapes:
        left_on_top[list(shape.left_on_top)] = True
    hierarchy = build_hierarchy(tree, edges, rank, left_on_top)
    placer = _Placer(hierarchy, drawing, shapes)

    deepest = int(placer.tree.depth.max())
    phase("modules", of=PHASES * (deepest + 1) + 3)
    # from the inside out: a frame is placed as a box, so its size must be known
    for depth in range(deepest, -1, -1):
        placer.place_level(depth)

    placed, frames = placer.on_page()
    every = np.arange(len(edges))
    routes = joined(placed.routes, np.flatnonzero(kept), every, len(kept))
    return placed._replace(routes=routes), frames


class _Placer:
    """Collects what is known of nodes and segments, level by level. Until `on_page`,
    places count from their frame.
    """

    def __init__(
        self, hierarchy: Hierarchy, drawing: Drawing, shapes: Sequence[Halves]
    ) -> None:
        self.hierarchy, self.drawing, self.tree = hierarchy, drawing, hierarchy.tree
        nodes, self.boxes = len(hierarchy.home), drawing.size
        self.page = hierarchy.tree.page
        self.size, self.middle = np.zeros((2, nodes, 2))
        self.size[: self.boxes] = np.column_stack((drawing.widths, drawing.heights))
        self.words = np.zeros(nodes)
        self.words[: self.boxes] = drawing.room_below
        self.title = np.array(
            [(frame.title_width, frame.title_height) for frame in drawing.frames]
        )
        self.inset = np.zeros((self.page + 1, 2))
        # a port of -1 has offset 0
        self.port_offset = np.zeros(nodes - self.boxes - self.page + 1)
        self.placed: list[tuple[Ints, Routes]] = []  # segments and their routes
        self.page_size = np.zeros((1, 2))

        # frames whose content is two columns; the right one of a U is upside down
        self.columns = {self._around(shape.left): shape for shape in shapes}
        self.mirrored = np.zeros(self.page + 1, np.bool_)
        self.side = np.zeros(nodes, np.int64)
        for shape in shapes:
            self.mirrored[shape.right] = len(shape.skips) > 0
            for box, other in drawing.edges[shape.skips].tolist():
                self.side[self._items(box, shape.left)] = 1
                self.side[self._items(other, shape.right)] = -1
        outermost_first = np.argsort(self.tree.depth[:-1], kind="stable")
        for frame in outermost_first.tolist():
            self.mirrored[frame] |= self.mirrored[self._around(frame)]

    def _around(self, frame: int) -> int:
        return int(self.tree.home[self.boxes + frame])

    def _chosen(self, frames: Ints) -> Mask:
        """True for these frames."""
        chosen = np.zeros(self.page + 1, np.bool_)
        chosen[frames] = True
        return chosen

    def place_level(self, depth: int) -> None:
        """Place the contents of all frames of one depth."""
        frames = np.flatnonzero(self.tree.depth == depth)
        two = np.isin(frames, list(self.columns))
        sizes = np.zeros((len(frames), 2))
        if not two.all():
            sizes[~two] = self._place_in_rows(frames[~two])

        for i in np.flatnonzero(two).tolist():
            sizes[i] = self._place_beside(int(frames[i]))

        if depth:
            self._size_frames(frames, sizes)
        else:
            self.page_size = sizes  # the page itself has no frame

    def _place_in_rows(self, frames: Ints) -> Floats:
        """Place the contents of these frames in rows, and return how large they are."""
        home, segment = self.hierarchy.home, self.hierarchy.segments
        chosen = self._chosen(frames)
        halved = [s for s in self.columns.values() if chosen[s.left]]
        members = np.flatnonzero(chosen[home])
        # an edge through frames is cut at each border, and each piece placed in its
        # frame
        segments = np.flatnonzero(chosen[segment.frame])
        local, part = np.zeros_like(home), np.zeros(self.page + 1, np.int64)
        local[members] = np.arange(len(members))
        part[frames] = np.arange(len(frames))
        levels = [
            level._replace(left=local[level.left], right=local[level.right])
            for shape in halved
            for level in self._levels(shape)
        ]
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
                side=self.side[members],
                levels=tuple(levels),
                columns=not halved,
            )
        )
        self.middle[members] = placed.middles
        self.placed.append((segments, placed.routes))
        return placed.sizes

    def _levels(self, shape: Halves) -> list[Level]:
        """The skips of a U by nodes of its columns."""
        levels: list[Level] = []
        for box, other in self.drawing.edges[shape.skips].tolist():
            left = self._items(box, shape.left)
            right = self._items(other, shape.right)
            ends = left[-1], self._below(left), right[-1], self._below(right)
            levels.append(Level(*ends))
        return levels

    def _items(self, box: int, frame: int) -> list[int]:
        """A box and the frames around it, up to the one that lies right in `frame`."""
        items = [box]
        while self.tree.home[items[-1]] != frame:
            around = int(self.tree.home[items[-1]])
            items.append(self.boxes + around)
        return items

    def _below(self, items: list[int]) -> float:
        """How far the middle of the first lies below that of the last."""
        offset = 0.0
        for item, around in pairwise(items):
            offset += self.inset[around - self.boxes, 1]
            offset += self.middle[item, 1] - self.size[around, 1] / 2
        return offset

    def _place_beside(self, frame: int) -> Floats:
        """Place the two columns of a frame, and return how large its content is."""
        shape, segment = self.columns[frame], self.hierarchy.segments
        nodes = [self.boxes + shape.left, self.boxes + shape.right]
        lower = 0.0
        if len(shape.skips):
            box, other = self.drawing.edges[shape.skips[0]].tolist()
            left = self._below([*self._items(box, shape.left), nodes[0]])
            right = self._below([*self._items(other, shape.right), nodes[1]])
            # the right column is upside down
            height, other_height = self.size[nodes, 1].tolist()
            lower = left + right + (height - other_height) / 2

        segments = np.flatnonzero(segment.frame == frame)
        upper = zip(segment.upper[segments], segment.upper_port[segments])
        under = zip(segment.lower[segments], segment.lower_port[segments])
        pairs = [
            (self._end(nodes, *end), self._end(nodes, *other))
            for end, other in zip(upper, under)
        ]
        gap = CHANNEL if len(shape.skips) else NARROW
        placed = place_beside(self.size[nodes], lower, pairs, gap)

        for node, corner in zip(nodes, placed.corners):
            self.middle[node] = corner + self.size[node] / 2
        for i, route in zip(segments.tolist(), placed.lines):
            for node, point in (
                (segment.upper[i], route[0]),
                (segment.lower[i], route[-1]),
            ):
                if self.hierarchy.pin[node] != FREE:
                    self.middle[node] = point

        self.placed.append((segments, as_routes(placed.lines)))
        return placed.size

    def _end(self, nodes: list[int], node: int, port: int) -> End:
        """The end of a line at one of two columns, or at the border around them."""
        if node not in nodes:
            return End(None, 0.0, bool(self.hierarchy.pin[node] == TOP))
        is_top = self.hierarchy.pin[self.boxes + self.page + port] == TOP
        is_top ^= self.mirrored[node - self.boxes]
        x = self.port_offset[port] + self.size[node, 0] / 2
        return End(nodes.index(node), float(x), bool(is_top))

    def _size_frames(self, frames: Ints, contents: Floats) -> None:
        """Sizes of frames from their contents, and where their ports are."""
        home, pin, gap = self.hierarchy.home, self.hierarchy.pin, self.drawing.gap
        members = np.flatnonzero(self._chosen(frames)[home] & (pin != FREE))
        title, title_height = self.title[frames].T
        mirrored = self.mirrored[home[members]]
        ports = members[pin[members] == np.where(mirrored, BOTTOM, TOP)]
        entry = by_key(
            np.minimum,
            self.middle[ports, 0],
            home[ports],
            self.page + 1,
            np.inf,
        )
        widths, heights = contents.T
        # a title stands left of the first line that enters from above
        beside = np.where(
            title > 0,
            title + TITLE_ROOM - entry[frames],
            0.0,
        )
        left = np.maximum(
            np.maximum(gap, beside),
            (title + gap - widths) / 2,
        )
        self.inset[frames] = np.column_stack(
            (left, np.where(self.mirrored[frames], 0.0, title_height) + gap / 2)
        )
        node = self.boxes + frames
        self.size[node] = np.column_stack(
            (np.maximum(left + widths, title) + gap, title_height + heights + gap)
        )
        # the next level outwards continues the lines from here
        inside = home[members]
        self.port_offset[members - self.boxes - self.page] = (
            self.middle[members, 0]
            + self.inset[inside, 0]
            - self.size[self.boxes + inside, 0] / 2
        )

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
