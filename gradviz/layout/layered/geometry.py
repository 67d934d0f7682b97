"""Sizes and places of nodes, and routes of segments: what becomes known frame by frame,
from the inside out.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gradviz.layout import Drawing, Floats, Ints
from gradviz.layout.layered.grouping import Mask, places, sizes_of
from gradviz.layout.layered.nesting import Hierarchy
from gradviz.layout.layered.routes import (
    Routes,
    concatenated,
    joined,
    reversed_routes,
    without_idle_points,
)


class Geometry:
    """What is known of nodes. Until `on_page`, places count from the upper left corner
    of what lies in the frame around them.
    """

    def __init__(self, drawing: Drawing, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.size, self.middle, self.inset = np.zeros((3, len(hierarchy.home), 2))
        self.size[: drawing.size] = np.column_stack((drawing.widths, drawing.heights))
        self._routes: list[tuple[Ints, Routes]] = []

    def attachments(self, segments: Ints) -> tuple[Ints, Floats]:
        """The upper and the lower item of segments in their drawing, and how far right
        of the middle of each they meet it; both of shape (2, segments).
        """
        frame, ends = self.hierarchy.segments
        ends = ends[:, segments]
        home = self.hierarchy.home[ends]
        items = np.where(home == frame[segments], ends, home)
        port = self.middle[ends, 0] + self.inset[items, 0] - self.size[items, 0] / 2
        return items, np.where(items == ends, 0.0, port)

    def depth(self, way: list[int]) -> float:
        """How far the middle of a box lies below that of the frame to which a way out
        of it leads.
        """
        depth = 0.0
        for item, frame in pairwise(way):
            depth += self.inset[frame, 1]
            depth += self.middle[item, 1] - self.size[frame, 1] / 2
        return depth

    def add_routes(self, segments: Ints, routes: Routes) -> None:
        """Keep the routes of these segments."""
        self._routes.append((segments, routes))

    def on_page(self, is_mirrored: Mask) -> tuple[Floats, Routes]:
        """The middles of boxes and frames on the page, and the routes of all edges
        there. What lies in mirrored frames is upside down.
        """
        tree = self.hierarchy.tree
        # a point of a frame's content is at origin + sign * point
        origin, sign = np.zeros_like(self.inset), np.ones_like(self.inset)
        sign[is_mirrored, 1] = -1.0
        middle = self.middle.copy()

        def move(nodes: Ints) -> None:
            home = tree.home[nodes]
            middle[nodes] = sign[home] * self.middle[nodes] + origin[home]

        for frames in tree.levels()[1:]:  # outer frames first
            move(frames)
            size, inset = self.size[frames], self.inset[frames]
            upright = sign[frames] > 0
            corner = middle[frames] - size / 2
            origin[frames] = corner + np.where(upright, inset, size - inset)

        move(np.arange(tree.page))
        return middle[: len(tree.home)], self._edge_routes(origin, sign)

    def _edge_routes(self, origin: Floats, sign: Floats) -> Routes:
        """Routes of the edges from those of their segments."""
        hierarchy = self.hierarchy
        order = np.concatenate([segments for segments, _ in self._routes])
        points, starts = concatenated([routes for _, routes in self._routes])
        frame = np.repeat(hierarchy.segments.frame[order], sizes_of(starts))
        routes = joined(
            Routes(sign[frame] * points + origin[frame], starts),
            hierarchy.step_edge,
            places(order)[hierarchy.step_segment],
            len(hierarchy.upwards),
        )
        # edges that were turned round, so that no circle was left, run upwards again
        upwards = np.flatnonzero(hierarchy.upwards)
        return reversed_routes(without_idle_points(routes), upwards)
