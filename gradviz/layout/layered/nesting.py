"""Edges through frames, cut at their borders.

A frame is a box in the drawing around it, and a drawing of its own inside. An edge
between boxes of different frames is a series of segments, one in each drawing that it
passes; they meet at ports, which lie on borders. All edges from one box share their
ports, so a tensor used many times inside a frame enters it once.

Nodes number everything that has a place: boxes 0..n-1, the page, which is a frame
around everything, then frames, then ports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gradviz.layout import Ints, LayoutFrame
from gradviz.layout.layered.feedback import against_the_stream
from gradviz.layout.layered.grouping import Mask, distinct, distinct_pairs, group
from gradviz.layout.layered.sheet import BOTTOM, FREE, TOP


class FrameTree(NamedTuple):
    """Which frame every box and every frame lies in, by their nodes."""

    page: int  # its node, and the number of boxes
    home: Ints  # (nodes,) -1 for the page
    depth: Ints  # (nodes,) how many frames are around each

    def levels(self) -> list[Ints]:
        """The frames of each depth, the page first."""
        depth = self.depth[self.page :]
        frames = group(depth, int(depth.max()) + 1)
        return [self.page + frames.of(level) for level in range(len(frames.start) - 1)]

    def way_out(self, box: int, frame: int) -> list[int]:
        """A box and the frames around it, up to this one."""
        way = [box]
        while way[-1] != frame:
            way.append(int(self.home[way[-1]]))
        return way


class Segments(NamedTuple):
    """Pieces of edges inside one drawing, each from an upper end to a lower one: a box,
    or a port of the frame itself or of a frame in it.
    """

    frame: Ints  # (k,) whose drawing
    ends: Ints  # (2, k)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Everything that is laid out frame by frame, and how edges are put together again."""

    tree: FrameTree
    home: Ints  # (nodes,) that of a port is the frame on whose border it lies
    pin: Ints  # (nodes,) FREE, TOP or BOTTOM
    segments: Segments
    step_edge: Ints  # (steps,) the edge of every step, sorted
    step_segment: Ints  # (steps,) from the upper box to the lower one
    # (edges,) drawn from the lower box to the upper one, because their frames feed each
    # other
    upwards: Mask


class _Steps(NamedTuple):
    """Segments before they are shared, those of one edge in their order: whose they are,
    and what they join (see `_port`).
    """

    edge: Ints
    frame: Ints
    upper: Ints
    lower: Ints


def frame_tree(frame_of: Ints, frames: tuple[LayoutFrame, ...]) -> FrameTree:
    """The tree of frames. Raises ValueError where frames lie inside each other in a
    circle.
    """
    page = len(frame_of)
    parents = [-1 if frame.parent is None else frame.parent for frame in frames]
    # frame -1, which is none, is the page
    around = page + 1 + np.append(frame_of, np.array([-1, *parents], np.int64))
    around[page] = -1
    depth, ancestor = np.zeros_like(around), around

    while (ancestor >= 0).any():
        depth += ancestor >= 0
        ancestor = np.where(ancestor >= 0, around[ancestor], -1)
        if depth.max() > len(frames) + 1:
            raise ValueError(
                "some frames lie inside each other in a circle: look at their parents"
            )

    return FrameTree(page, around, depth)


def build_hierarchy(tree: FrameTree, edges: Ints, rank: Ints) -> Hierarchy:
    """Cut edges into segments. `rank` is the row that each box would have without
    frames.
    """
    items = meeting_items(tree, edges)
    upwards = against_the_stream(len(tree.home), rank, edges, items)
    boxes = np.where(upwards, np.flip(edges.T, 0), edges.T)
    holders = np.where(upwards, items[::-1], items)
    return _share(tree, _steps(tree, boxes, holders), upwards)


def meeting_items(tree: FrameTree, edges: Ints) -> Ints:
    """For every edge the two items, in one and the same drawing, that hold its ends; of
    shape (2, edges).
    """
    items = edges.T.copy()
    while True:
        home = tree.home[items]
        apart = home[0] != home[1]
        if not apart.any():
            return items
        depth = tree.depth[items]
        # the deeper end climbs; both do where they are equally deep
        climbs = apart & (depth >= depth[::-1])
        items[climbs] = home[climbs]


def _port(tree: FrameTree, frame: Ints, pin: int, source: Ints) -> Ints:
    """A number for the port at the top or bottom of a frame through which lines from a
    box pass. Those of boxes are smaller.
    """
    border: Ints = 2 * frame + (pin == BOTTOM)
    return tree.page * border + source


def _steps(tree: FrameTree, boxes: Ints, items: Ints) -> _Steps:
    """The segments of all edges: out of the frames of the upper box, across, into the
    frames of the lower one.
    """
    (upper, lower), (upper_item, lower_item) = boxes, items
    out, start = _climb(tree, upper, upper_item, upper, BOTTOM)
    into, end = _climb(tree, lower, lower_item, upper, TOP)
    across = _Steps(np.arange(len(upper)), tree.home[upper_item], start, end)
    down = [_Steps(edge, frame, port, low) for edge, frame, low, port in into[::-1]]
    columns = zip(*out, across, *down)
    return _Steps(*(np.concatenate(column) for column in columns))


def _climb(
    tree: FrameTree, box: Ints, item: Ints, source: Ints, pin: int
) -> tuple[list[_Steps], Ints]:
    """Steps from boxes up to the items that hold them, and what the last step of each
    ends at.
    """
    reached, end = box.copy(), box.copy()
    steps: list[_Steps] = []
    climbing = np.flatnonzero(reached != item)

    while len(climbing):
        frame = tree.home[reached[climbing]]
        port = _port(tree, frame, pin, source[climbing])
        steps.append(_Steps(climbing, frame, end[climbing], port))
        reached[climbing], end[climbing] = frame, port
        climbing = climbing[frame != item[climbing]]

    return steps, end


def _share(tree: FrameTree, steps: _Steps, upwards: Mask) -> Hierarchy:
    """Number the ports and draw every segment once."""
    joined = np.append(steps.upper, steps.lower)
    keys, index = distinct(joined)
    boxes, ports = keys[keys < tree.page], keys[keys >= tree.page]
    first_port = len(tree.home)
    nodes = np.append(boxes, first_port + np.arange(len(ports)))
    ends = nodes[index].reshape(2, -1)
    upper, lower, segment = distinct_pairs(ends, first_port + len(ports))
    frame = np.empty(len(upper), np.int64)
    frame[segment] = steps.frame

    port_frame, at_bottom = np.divmod(ports // max(tree.page, 1), 2)
    pin = np.append(np.full(first_port, FREE), np.where(at_bottom, BOTTOM, TOP))
    order = np.argsort(steps.edge, kind="stable")
    return Hierarchy(
        tree=tree,
        home=np.append(tree.home, port_frame),
        pin=pin,
        segments=Segments(frame, np.array([upper, lower])),
        step_edge=steps.edge[order],
        step_segment=segment[order],
        upwards=upwards,
    )
