"""Drawings with frames: every frame is laid out on its own, the innermost first, and is then one box in its parent.

All frames of one depth are one sheet. Room is kept on top of each frame for its title, at the upper left corner; edges
enter to the right of it, so that none runs through the text.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.grouping import starts_of
from gradviz.layout.layered.hierarchy import Hierarchy, build_hierarchy, frame_tree
from gradviz.layout.layered.layers import TOP, Sheet, SheetPlacement
from gradviz.layout.layered.ranks import neighbours, rank_nodes
from gradviz.layout.layered.routes import Routes, joined, reversed_routes
from gradviz.layout.layered.sheets import PHASES, place_sheet
from gradviz.layout.model import Drawing, Floats, Ints, Placement, Rect
from gradviz.stages import phase

TITLE_ROOM = 6.0  # px between a title and the first edge beside it


def place_with_frames(drawing: Drawing) -> Placement:
    """Place boxes and the frames around them. Edges must be distinct. Raises Cycle when they form one."""
    n, above, below = drawing.size, drawing.edges[:, 0], drawing.edges[:, 1]
    rank = rank_nodes(neighbours(n, above, below)).rank
    hierarchy = build_hierarchy(frame_tree(drawing.frame_of, drawing.frames), drawing.edges, rank)
    placer = _Placer(hierarchy, drawing)
    deepest = int(hierarchy.tree.depth.max())
    phase("modules", of=PHASES * (deepest + 1) + 3)
    for depth in range(deepest, -1, -1):
        placer.place_level(depth)
    return placer.on_page()


class _Placer:
    """Collects what is known of nodes and segments, level by level. Until `on_page`, places count from their frame."""

    def __init__(self, hierarchy: Hierarchy, drawing: Drawing) -> None:
        self.hierarchy, self.drawing = hierarchy, drawing
        nodes, self.boxes, self.page = len(hierarchy.home), drawing.size, hierarchy.tree.page
        self.width, self.height = np.zeros(nodes + 1), np.zeros(nodes + 1)
        self.width[: self.boxes], self.height[: self.boxes] = drawing.widths, drawing.heights
        self.x, self.y = np.zeros(nodes), np.zeros(nodes)
        self.title_width = np.array([f.title_width for f in drawing.frames] + [0.0])
        self.title_height = np.array([f.title_height for f in drawing.frames] + [0.0])
        self.inset_x, self.inset_y = np.zeros(self.page + 1), np.zeros(self.page + 1)
        self.frame_width, self.frame_height = np.zeros(self.page + 1), np.zeros(self.page + 1)
        self.port_offset = np.zeros(nodes - self.boxes - self.page)
        self.points: list[Floats] = []
        self.sizes: list[Ints] = []
        self.order: list[Ints] = []

    def place_level(self, depth: int) -> None:
        """Place the contents of all frames of one depth."""
        tree, home = self.hierarchy.tree, self.hierarchy.home
        frames = np.flatnonzero(tree.depth == depth)
        members = np.flatnonzero(tree.depth[home] == depth)
        segments = np.flatnonzero(tree.depth[self.hierarchy.segments.frame] == depth)
        sheet = self._sheet(frames, members, segments)
        placed = place_sheet(sheet)
        self.x[members], self.y[members] = placed.x, placed.y
        self.points.append(placed.points)
        self.sizes.append(np.diff(placed.starts))
        self.order.append(segments)
        self._size_frames(frames, members, placed)

    def _sheet(self, frames: Ints, members: Ints, segments: Ints) -> Sheet:
        pieces, home = self.hierarchy.segments, self.hierarchy.home
        local = np.zeros(len(home), np.int64)
        local[members] = np.arange(len(members))
        part = np.zeros(self.page + 1, np.int64)
        part[frames] = np.arange(len(frames))
        offset = np.append(self.port_offset, 0.0)  # a port of -1 has offset 0
        return Sheet(
            widths=self.width[members],
            heights=self.height[members],
            above=local[pieces.upper[segments]],
            below=local[pieces.lower[segments]],
            above_offset=offset[pieces.upper_port[segments]],
            below_offset=offset[pieces.lower_port[segments]],
            part=part[home[members]],
            parts=len(frames),
            pin=self.hierarchy.pin[members],
            gap=self.drawing.gap,
            rank_gap=self.drawing.rank_gap,
        )

    def _size_frames(self, frames: Ints, members: Ints, placed: SheetPlacement) -> None:
        """Sizes of frames from their contents, and where their ports are."""
        if frames[0] == self.page:
            self.frame_width[frames], self.frame_height[frames] = placed.widths, placed.heights
            return
        home, gap = self.hierarchy.home, self.drawing.gap
        title = self.title_width[frames]
        entry = np.full(self.page + 1, np.inf)
        ports = members[self.hierarchy.pin[members] == TOP]
        np.minimum.at(entry, home[ports], self.x[ports])
        beside = np.where(title > 0, title + TITLE_ROOM - entry[frames], 0.0)
        left = np.maximum(np.maximum(gap, beside), (title + gap - placed.widths) / 2)
        self.inset_x[frames], self.inset_y[frames] = left, self.title_height[frames] + gap / 2
        self.frame_width[frames] = np.maximum(left + placed.widths, title) + gap
        self.frame_height[frames] = self.inset_y[frames] + placed.heights + gap / 2
        node = self.boxes + frames
        self.width[node], self.height[node] = self.frame_width[frames], self.frame_height[frames]
        ports = members[self.hierarchy.pin[members] != 0]
        inside = home[ports]
        self.port_offset[ports - self.boxes - self.page] = (
            self.x[ports] + self.inset_x[inside] - self.frame_width[inside] / 2
        )

    def on_page(self) -> Placement:
        """Everything in the coordinates of the page."""
        corner_x, corner_y = self._corners()
        inner_x, inner_y = corner_x + self.inset_x, corner_y + self.inset_y
        home = self.hierarchy.home[: self.boxes]
        x, y = self.x[: self.boxes] + inner_x[home], self.y[: self.boxes] + inner_y[home]
        *rects, page = np.column_stack((corner_x, corner_y, self.frame_width, self.frame_height)).tolist()
        routes = self._routes(inner_x, inner_y)
        frames = tuple(Rect(*rect) for rect in rects)
        return Placement(x, y, routes.points, routes.starts, frames, page[2], page[3], "layered")

    def _corners(self) -> tuple[Floats, Floats]:
        """Upper left corners of all frames and of the page."""
        tree = self.hierarchy.tree
        corner_x, corner_y = np.zeros(self.page + 1), np.zeros(self.page + 1)
        for depth in range(1, int(tree.depth.max()) + 1):
            frames = np.flatnonzero(tree.depth == depth)
            node = self.boxes + frames
            around = tree.home[node]
            corner_x[frames] = corner_x[around] + self.inset_x[around] + self.x[node] - self.width[node] / 2
            corner_y[frames] = corner_y[around] + self.inset_y[around] + self.y[node] - self.height[node] / 2
        return corner_x, corner_y

    def _routes(self, inner_x: Floats, inner_y: Floats) -> Routes:
        """Routes of the edges from those of their segments."""
        order, sizes = np.concatenate(self.order), np.concatenate(self.sizes)
        frame = np.repeat(self.hierarchy.segments.frame[order], sizes)
        points = np.concatenate(self.points) + np.column_stack((inner_x[frame], inner_y[frame]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        pieces = place[self.hierarchy.step_segment]
        routes = joined(Routes(points, starts_of(sizes)), self.hierarchy.step_edge, pieces, len(self.drawing.edges))
        return reversed_routes(routes, self.hierarchy.upwards)
