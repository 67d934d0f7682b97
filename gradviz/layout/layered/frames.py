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
from gradviz.layout.layered.grouping import by_key, places, starts_of
from gradviz.layout.layered.layers import BOTTOM, FREE, TOP, Level, Sheet
from gradviz.layout.layered.nesting import Hierarchy, build_hierarchy, frame_tree
from gradviz.layout.layered.ranks import neighbours, rank_nodes
from gradviz.layout.layered.routes import Routes, joined, reversed_routes
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
    placer.edges = len(edges)

    deepest = int(placer.tree.depth.max())
    phase("modules", of=PHASES * (deepest + 1) + 3)
    # from the inside out: a frame is placed as a box, so its size must be known
    for depth in range(deepest, -1, -1):
        placer.place_level(depth)

    placed, frames = placer.on_page()
    routes = joined(
        placed.routes, np.flatnonzero(kept), np.arange(len(edges)), len(kept)
    )
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
        self.size = np.zeros((nodes, 2))
        self.middle = np.zeros((nodes, 2))
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
        self.edges = 0

        # frames whose content is two columns, and whether one is upside down
        self.columns = {int(self._around(shape.left)): shape for shape in shapes}
        self._right_ones = [shape.right for shape in shapes if len(shape.skips)]
        self.mirrored = np.zeros(self.page + 1, np.bool_)
        self.mirrored[self._right_ones] = True
        self.side = np.zeros(nodes, np.int64)
        for shape in shapes:
            for box, other in drawing.edges[shape.skips].tolist():
                self.side[self._items(box, shape.left)] = 1
                self.side[self._items(other, shape.right)] = -1
        for frame in np.argsort(self.tree.depth[:-1], kind="stable").tolist():
            self.mirrored[frame] |= self.mirrored[self._around(frame)]

    def _around(self, frame: int) -> int:
        return int(self.tree.home[self.boxes + frame])

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
        chosen = np.zeros(self.page + 1, np.bool_)
        chosen[frames] = True
        members = np.flatnonzero(chosen[home])
        # an edge through frames is cut at each border, and each piece placed in its
        # frame
        segments = np.flatnonzero(chosen[segment.frame])
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
                side=self.side[members],
                levels=tuple(
                    level._replace(left=local[level.left], right=local[level.right])
                    for shape in self.columns.values()
                    if chosen[shape.left]
                    for level in self._levels(shape)
                ),
                columns=not any(chosen[shape.left] for shape in self.columns.values()),
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
            offsets = self._below(left), self._below(right)
            levels.append(Level(left[-1], offsets[0], right[-1], offsets[1]))
        return levels

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
            offset += self.inset[around - self.boxes, 1] + self.middle[item, 1]
            offset -= self.size[around, 1] / 2
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
            shorter = self.size[nodes[0], 1] - self.size[nodes[1], 1]
            lower = left + right + shorter / 2

        segments = np.flatnonzero(segment.frame == frame)
        pairs = [
            (
                self._end(nodes, segment.upper[i], segment.upper_port[i]),
                self._end(nodes, segment.lower[i], segment.lower_port[i]),
            )
            for i in segments.tolist()
        ]
        # from a column, to the other one or to the border
        turned = [begin.column is None for begin, _ in pairs]
        lines = [pair[::-1] if back else pair for pair, back in zip(pairs, turned)]
        gap = CHANNEL if len(shape.skips) else NARROW
        placed = place_beside(self.size[nodes], lower, lines, gap)

        for node, corner in zip(nodes, placed.corners):
            self.middle[node] = corner + self.size[node] / 2
        routes = [
            line[::-1] if back else line for line, back in zip(placed.lines, turned)
        ]
        for i, route in zip(segments.tolist(), routes):
            for node, point in (
                (segment.upper[i], route[0]),
                (segment.lower[i], route[-1]),
            ):
                if self.hierarchy.pin[node] != FREE:
                    self.middle[node] = point

        sizes = np.array([len(route) for route in routes], np.int64)
        points = np.concatenate([np.zeros((0, 2)), *routes])
        self.placed.append((segments, Routes(points, starts_of(sizes))))
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
        chosen = np.zeros(self.page + 1, np.bool_)
        chosen[frames] = True
        members = np.flatnonzero(chosen[home] & (pin != FREE))
        title, title_height = self.title[frames].T
        mirrored = self.mirrored[frames]
        ports = members[
            pin[members] == np.where(self.mirrored[home[members]], BOTTOM, TOP)
        ]
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
            (left, np.where(mirrored, 0.0, title_height) + gap / 2)
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
        depth, corner = self.tree.depth, np.zeros_like(self.inset)
        axis = np.zeros(self.page + 1)
        for level in range(1, int(depth.max()) + 1):
            frames = np.flatnonzero(depth == level)
            node = self.boxes + frames
            # outer frames first, so their corners are known
            outer = self.tree.home[node]
            corner[frames] = (
                corner[outer]
                + self.inset[outer]
                + self.middle[node]
                - self.size[node] / 2
            )

            is_right = np.isin(frames, self._right_ones)
            turning = 2 * corner[frames, 1] + self.size[node, 1]
            axis[frames] = np.where(is_right, turning, axis[outer])

        inner = corner + self.inset
        home = self.tree.home[: self.boxes]
        middles = self.middle[: self.boxes] + inner[home]
        middles[:, 1] = self._mirrored_y(middles[:, 1], home, axis)

        size = self.size[self.boxes : self.boxes + self.page]
        top = corner[:-1]
        around = self.tree.home[self.boxes :]
        low = self._mirrored_y(top[:, 1] + size[:, 1], around, axis)
        top[:, 1] = np.where(self.mirrored[around], low, top[:, 1])
        rects = np.column_stack((top, size)).tolist()
        return SheetPlacement(
            middles, self._routes(inner, axis), self.page_size
        ), tuple(Rect(*rect) for rect in rects)

    def _mirrored_y(self, y: Floats, frame: Ints, axis: Floats) -> Floats:
        """y of what lies in these frames, when those upside down are turned."""
        return np.where(self.mirrored[frame], axis[frame] - y, y)

    def _routes(self, inner: Floats, axis: Floats) -> Routes:
        """Routes of the edges from those of their segments."""
        order = np.concatenate([segments for segments, _ in self.placed])
        sizes = np.concatenate([np.diff(routes.starts) for _, routes in self.placed])
        points = np.concatenate([routes.points for _, routes in self.placed])
        frame = np.repeat(self.hierarchy.segments.frame[order], sizes)
        points += inner[frame]
        points[:, 1] = self._mirrored_y(points[:, 1], frame, axis)
        every = reversed_routes(
            Routes(points, starts_of(sizes)),
            np.flatnonzero(self.hierarchy.segments.back[order]),
        )
        pieces = places(order)[self.hierarchy.step_segment]
        routes = joined(
            every,
            self.hierarchy.step_edge,
            pieces,
            self.edges,
        )

        # edges that were turned round, so that no circle was left, run upwards again
        return reversed_routes(routes, self.hierarchy.upwards)
