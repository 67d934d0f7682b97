"""The layout: rows from top to bottom, close to linear in boxes and edges.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of
Hierarchical System Structures" (1981): rows, order within rows, coordinates. What makes
them fast and keeps deep drawings narrow is said in `ranks`, `ordering` and
`coordinates`. Every frame is laid out on its own, the innermost first, and is then one
box in its parent. Nothing here knows of graphs, ops or text, and nothing walks a graph
by recursion.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gradviz.layout import (
    CycleError,
    Drawing,
    Floats,
    Ints,
    Placement,
    Rect,
    leading_back,
    turned,
    turned_back,
)
from gradviz.layout.layered.columns import in_columns
from gradviz.layout.layered.coordinates import (
    first_coordinates,
    pieces_by_place,
    polish,
    spacing,
)
from gradviz.layout.layered.grouping import (
    by_key,
    components,
    distinct_pairs,
    group,
    places,
    starts_of,
)
from gradviz.layout.layered.layers import (
    FREE,
    TOP,
    Layers,
    Sheet,
    cut_into_layers,
    plain_sheet,
)
from gradviz.layout.layered.nesting import (
    Grids,
    Hierarchy,
    build_hierarchy,
    frame_tree,
    leaf_routes,
    make_grids,
)
from gradviz.layout.layered.ordering import best_order
from gradviz.layout.layered.ranks import (
    depth_order,
    given_order,
    longest_ways,
    neighbours,
    rank_nodes,
    rows_by_component,
    with_siblings_level,
    with_towers_beside,
)
from gradviz.layout.layered.routes import (
    Routes,
    Rows,
    channel_coordinates,
    edge_routes,
    joined,
    place_rows,
    reversed_routes,
)
from gradviz.stages import Stage, phase


class SheetPlacement(NamedTuple):
    """Where a sheet's boxes went. Every drawing has its own origin, the upper left
    corner of what is in it.
    """

    middles: Floats  # (n, 2)
    routes: Routes
    sizes: Floats  # (parts, 2)


def place(drawing: Drawing) -> Placement:
    """Place boxes in rows from top to bottom. An edge from a box to itself gets no
    points.

    Of edges that form a cycle as few as possible run upwards, and `notes` says so.
    """
    try:
        return _in_rows(drawing)
    except CycleError:
        back = leading_back(drawing)
        return turned_back(_in_rows(turned(drawing, back)), back)


def _in_rows(drawing: Drawing) -> Placement:
    """The placement. Raises CycleError when the edges form a cycle."""
    with Stage("layout"):
        phase("grids", of=PHASES + 2)  # with frames it turns out to be more
        edges, which = _distinct_edges(drawing)
        widths, heights = (
            np.asarray(size, np.float64) for size in (drawing.widths, drawing.heights)
        )
        frame_of = np.asarray(drawing.frame_of, np.int64)
        grids = make_grids(
            replace(
                drawing, widths=widths, heights=heights, edges=edges, frame_of=frame_of
            )
        )
        frames: tuple[Rect, ...] = ()

        if drawing.frames:
            placed, frames = _place_with_frames(grids.outside)
        else:
            placed = place_sheet(plain_sheet(grids.outside))

        phase("joining")
        middles = placed.middles[grids.box]
        middles[grids.leaf] += grids.aside
        routes = _whole_routes(
            grids, placed.routes, leaf_routes(grids, middles, heights), which
        )
        x, y = middles.T.copy()
        width, height = placed.sizes[0].tolist()
        return Placement(
            x,
            y,
            routes.points,
            routes.starts,
            frames,
            width,
            height,
        )


def _distinct_edges(drawing: Drawing) -> tuple[Ints, Ints]:
    """Edges without repetitions and self-loops, and for every edge of the drawing which
    of them it is, or -1.
    """
    edges = np.asarray(drawing.edges, np.int64).reshape(
        -1,
        2,
    )
    which = np.full(len(edges), -1, np.int64)
    proper = np.flatnonzero(edges[:, 0] != edges[:, 1])
    above, below, which[proper] = distinct_pairs(
        edges[proper].T,
        drawing.size,
    )
    return np.column_stack((above, below)), which


def _whole_routes(
    grids: Grids,
    outside: Routes,
    inner: Routes,
    which: Ints,
) -> Routes:
    """Routes of all edges of the drawing; those from grids begin, or end, inside them."""
    every = Routes(
        np.concatenate((outside.points, inner.points)),
        np.concatenate((outside.starts[:-1], len(outside.points) + inner.starts)),
    )
    # pieces before, outside and after
    inside = np.full(
        (len(grids.edge), 3),
        -1,
        np.int64,
    )
    inside[:, 1] = grids.edge
    inside[grids.leaf_edge, np.where(grids.flipped, 2, 0)] = (
        len(outside.starts) - 1 + np.arange(len(grids.leaf))
    )
    drawn = np.flatnonzero(which >= 0)
    pieces = inside[which[drawn]]

    return joined(
        every,
        np.repeat(
            drawn,
            (pieces >= 0).sum(axis=1),
        ),
        pieces[pieces >= 0],
        len(which),
    )


# -- frames ----------------------------------------------------------------------------

# All frames of one depth are one sheet. Room is kept on top of each frame for its
# title, at the upper left corner; edges enter to the right of it, so that none runs
# through the text.

TITLE_ROOM = 6.0  # px between a title and the first edge beside it


def _place_with_frames(
    drawing: Drawing,
) -> tuple[SheetPlacement, tuple[Rect, ...]]:
    """Place boxes and the frames around them. Edges must be distinct. Raises Cycle when
    they form one.
    """
    rank = rank_nodes(neighbours(drawing.size, *drawing.edges.T)).rank
    placer = _Placer(
        build_hierarchy(
            frame_tree(drawing.frame_of, drawing.frames), drawing.edges, rank
        ),
        drawing,
    )
    deepest = int(placer.tree.depth.max())
    phase("modules", of=PHASES * (deepest + 1) + 3)
    # from the inside out: a frame is placed as a box, so its size must be known
    for depth in range(deepest, -1, -1):
        sizes = placer.place_level(depth)

    return placer.on_page(sizes)


class _Placer:
    """Collects what is known of nodes and segments, level by level. Until `on_page`,
    places count from their frame.
    """

    def __init__(self, hierarchy: Hierarchy, drawing: Drawing) -> None:
        self.hierarchy, self.drawing, self.tree = hierarchy, drawing, hierarchy.tree
        nodes, self.boxes, self.page = (
            len(hierarchy.home),
            drawing.size,
            hierarchy.tree.page,
        )
        self.size, self.middle = np.zeros((nodes, 2)), np.zeros((nodes, 2))
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

    def place_level(self, depth: int) -> Floats:
        """Place the contents of all frames of one depth, and return how large these
        are.
        """
        depth_of, home, segment = (
            self.tree.depth,
            self.hierarchy.home,
            self.hierarchy.segments,
        )
        frames, members = (
            np.flatnonzero(depth_of == depth),
            np.flatnonzero(depth_of[home] == depth),
        )
        # an edge through frames is cut at each border, and each piece placed in its
        # frame
        segments = np.flatnonzero(depth_of[segment.frame] == depth)
        local, part = (
            np.zeros(len(home), np.int64),
            np.zeros(self.page + 1, np.int64),
        )
        local[members], part[frames] = np.arange(len(members)), np.arange(len(frames))
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
                columns=True,
            )
        )
        self.middle[members] = placed.middles
        self.placed.append((segments, placed.routes))
        if depth:
            # the page itself has no frame
            self._size_frames(frames, members, placed.sizes)

        return placed.sizes

    def _size_frames(
        self,
        frames: Ints,
        members: Ints,
        contents: Floats,
    ) -> None:
        """Sizes of frames from their contents, and where their ports are."""
        home, pin, gap = self.hierarchy.home, self.hierarchy.pin, self.drawing.gap
        title, title_height = self.title[frames].T
        ports = members[pin[members] == TOP]
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
        top = title_height + gap / 2
        self.inset[frames] = np.column_stack((left, top))
        node = self.boxes + frames
        self.size[node] = np.column_stack(
            (np.maximum(left + widths, title) + gap, top + heights + gap / 2)
        )
        # the next level outwards continues the lines from here
        ports = members[pin[members] != FREE]
        inside = home[ports]
        self.port_offset[ports - self.boxes - self.page] = (
            self.middle[ports, 0]
            + self.inset[inside, 0]
            - self.size[self.boxes + inside, 0] / 2
        )

    def on_page(
        self,
        sizes: Floats,
    ) -> tuple[SheetPlacement, tuple[Rect, ...]]:
        """Everything in the coordinates of the page, and the frames there."""
        depth, corner = self.tree.depth, np.zeros_like(self.inset)
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

        rects = np.column_stack(
            (corner[:-1], self.size[self.boxes : self.boxes + self.page])
        ).tolist()
        inner = corner + self.inset
        middles = self.middle[: self.boxes] + inner[self.tree.home[: self.boxes]]
        return SheetPlacement(middles, self._routes(inner), sizes), tuple(
            Rect(*rect) for rect in rects
        )

    def _routes(self, inner: Floats) -> Routes:
        """Routes of the edges from those of their segments."""
        order = np.concatenate([segments for segments, _ in self.placed])
        sizes = np.concatenate([np.diff(routes.starts) for _, routes in self.placed])
        points = np.concatenate([routes.points for _, routes in self.placed])
        points += inner[np.repeat(self.hierarchy.segments.frame[order], sizes)]
        pieces = places(order)[self.hierarchy.step_segment]
        routes = joined(
            Routes(points, starts_of(sizes)),
            self.hierarchy.step_edge,
            pieces,
            len(self.drawing.edges),
        )

        # edges that were turned round, so that no circle was left, run upwards again
        return reversed_routes(routes, self.hierarchy.upwards)


# -- one run over a sheet: rows, first order, fewer crossings, x, y, routes, shelves ---

ASPECT = 1.6  # width to height that shelves aim at
PHASES = 5
"""Phases that one run begins."""


def place_sheet(sheet: Sheet) -> SheetPlacement:
    """Place everything on a sheet. Raises Cycle when the edges form one."""
    phase("rows")
    near = neighbours(sheet.size, sheet.above, sheet.below)
    component, count = components(sheet.size, sheet.above, sheet.below)
    ranking = rank_nodes(near)
    rank = with_siblings_level(ranking.rank, near, sheet.heights, component)
    rank = with_towers_beside(rank, near, sheet.heights)
    row = rows_by_component(rank, component, count, sheet.pin)
    ported = (sheet.above_offset != 0) | (sheet.below_offset != 0)
    main = longest_ways(
        near,
        ranking.height,
        component,
        sheet.pin == TOP,
        ported,
    )
    layers = cut_into_layers(sheet, row, component, count, main)
    phase("ordering")
    # two first orders, since crossings are only ever improved from where one begins
    starts = (
        lambda: depth_order(near, row, sheet.pin != FREE, main),
        lambda: given_order(near),
    )
    order = best_order(layers, starts)
    phase("columns")
    pieces, room = pieces_by_place(order), spacing(order)
    x_of_place, straight = first_coordinates(order, pieces, room)
    x = polish(x_of_place, pieces, straight, room)[order.place]
    phase("routes")
    rows = place_rows(sheet, layers, x)
    channel_x = channel_coordinates(sheet, layers, x)
    routes = edge_routes(sheet, layers, x, rows, channel_x)
    phase("shelves")
    if sheet.columns:
        x, rows, routes = in_columns(sheet, layers, x, rows, routes)

    return _on_shelves(sheet, layers, x, rows, routes, channel_x)


def _on_shelves(
    sheet: Sheet,
    layers: Layers,
    x: Floats,
    rows: Rows,
    routes: Routes,
    channel_x: Floats,
) -> SheetPlacement:
    """Move every component to its place in its drawing."""
    component = layers.component[: sheet.size]
    left = by_key(
        np.minimum,
        x - layers.half,
        layers.component,
        layers.components,
        np.inf,
    )
    right = by_key(
        np.maximum,
        x + layers.half,
        layers.component,
        layers.components,
        -np.inf,
    )
    np.maximum.at(
        right,
        component[sheet.above[layers.left_out]],
        channel_x,
    )
    move, sizes = _shelves(sheet, component, right - left, rows.height)
    move[:, 0] -= left
    points = routes.points + move[component[sheet.above].repeat(np.diff(routes.starts))]
    middles = np.column_stack((x[: sheet.size], rows.y)) + move[component]

    return SheetPlacement(middles, routes._replace(points=points), sizes)


def _shelves(
    sheet: Sheet, component: Ints, widths: Floats, heights: Floats
) -> tuple[Floats, Floats]:
    """Upper left corner of every component in its drawing, and the size of every
    drawing.

    Components of one drawing stand beside and below each other, the highest first.
    Those with ports stand side by side at the top, so that nothing lies between them
    and the border below.
    """
    ported = np.zeros(len(widths), np.bool_)
    ported[component[sheet.pin != FREE]] = True
    part = np.zeros(len(widths), np.int64)
    part[component] = sheet.part
    corner, sizes = np.zeros((len(widths), 2)), np.zeros((sheet.parts, 2))

    def in_rows(
        members: Ints,
        left: float,
        limit: float,
    ) -> tuple[float, float]:
        """Place components from x = `left` on. Returns the furthest right (a gap on)
        and lowest points.
        """
        x = y = tallest = furthest = 0.0
        for number in members.tolist():
            wide = float(widths[number]) + 2 * sheet.gap
            if x and x + wide > limit:
                x, y, tallest = 0.0, y + tallest + sheet.rank_gap, 0.0
            corner[number] = left + x, y
            x += wide
            furthest, tallest = max(furthest, x), max(tallest, float(heights[number]))
        return left + furthest, y + tallest

    members = group(part, sheet.parts)
    size = np.diff(members.start)
    alone = members.order[members.start[:-1][size == 1]]
    sizes[part[alone]] = np.column_stack((widths, heights))[alone]
    for p in np.flatnonzero(size > 1).tolist():
        inside = members.order[members.start[p] : members.start[p + 1]]
        right, bottom = in_rows(
            inside[ported[inside]],
            0.0,
            np.inf,
        )
        rest = inside[~ported[inside]]
        if len(rest):
            area = float(
                (
                    (widths[rest] + 2 * sheet.gap) * (heights[rest] + sheet.rank_gap)
                ).sum()
            )
            # the width of a rectangle of this area in the aspect that is aimed at
            limit = max(
                float(widths[rest].max()) + 2 * sheet.gap, (area * ASPECT) ** 0.5
            )
            right, low = in_rows(
                rest[np.argsort(-heights[rest], kind="stable")],
                right,
                limit,
            )
            bottom = max(bottom, low)
        sizes[p] = right - 2 * sheet.gap, bottom
    return corner, sizes
