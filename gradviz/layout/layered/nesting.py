"""Edges through frames, cut at their borders.

A frame is a box in the drawing around it, and a drawing of its own inside. An edge
between boxes of different frames is a series of segments, one in each drawing that it
passes; they meet at ports, which lie on borders. All edges from one box share their
ports, so a tensor used many times inside a frame enters it once.

Nodes number everything that has a place: boxes 0..n-1, then frames, then ports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints, LayoutFrame
from gradviz.layout.layered.grouping import Mask, counts, distinct_pairs, group, places
from gradviz.layout.layered.layers import BOTTOM, FREE, TOP

ENTRY, EXIT = range(2)
"""Ports at the top and the bottom of a frame."""
PIN_OF = np.array([TOP, BOTTOM])


class FrameTree(NamedTuple):
    """Frames 0..f-1, and the page as frame f. `home` is the frame of every box, then
    the frame around every frame.
    """

    boxes: int
    home: Ints  # (n + f,)
    depth: Ints  # (f + 1,) the page has depth 0

    @property
    def page(self) -> int:
        """Number of the page, which is the number of frames."""
        return len(self.depth) - 1


class Segments(NamedTuple):
    """Pieces of edges inside one drawing, each from an upper node to a lower one."""

    frame: Ints  # whose drawing
    upper: Ints
    lower: Ints
    upper_port: Ints  # the port on the border of the frame `upper`, or -1
    lower_port: Ints


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Everything that is laid out frame by frame, and how edges are put together again."""

    tree: FrameTree
    edges: int
    home: Ints  # (nodes,)
    pin: Ints  # (nodes,) FREE, TOP or BOTTOM
    segments: Segments
    step_edge: Ints  # (steps,) the edge of every step, sorted
    step_segment: Ints  # (steps,) from the upper box to the lower one
    # edges drawn from the lower box to the upper one, because their frames feed each
    # other
    upwards: Ints


class _Steps(NamedTuple):
    """Segments before they are shared: which edge, the how manieth on its way, and what
    it joins (see `_key`).
    """

    edge: Ints
    turn: Ints
    frame: Ints
    upper: Ints
    lower: Ints


def frame_tree(frame_of: Ints, frames: tuple[LayoutFrame, ...]) -> FrameTree:
    """The tree of frames. Raises ValueError where frames lie inside each other in a
    circle.
    """
    page = len(frames)
    around = [page if frame.parent is None else frame.parent for frame in frames]
    parent = np.array([*around, page], np.int64)
    depth = np.zeros(page + 1, np.int64)
    ancestor = np.arange(page + 1)

    while (ancestor != page).any():
        depth += ancestor != page
        ancestor = parent[ancestor]
        if depth.max() > page:
            raise ValueError(
                "some frames lie inside each other in a circle: look at their parents"
            )

    home = np.where(frame_of < 0, page, frame_of)
    return FrameTree(len(frame_of), np.append(home, parent[:page]), depth)


def build_hierarchy(tree: FrameTree, edges: Ints, rank: Ints) -> Hierarchy:
    """Cut edges into segments. `rank` is the row that each box would have without
    frames.
    """
    items = meeting_items(tree, edges)
    upwards = against_the_stream(len(tree.home), rank, edges, items)
    boxes = np.where(upwards, np.flip(edges.T, 0), edges.T)
    holders = np.where(upwards, items[::-1], items)
    steps = _steps(tree, boxes, holders)
    return _share(tree, steps, boxes[0], np.flatnonzero(upwards))


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
        depth = tree.depth[home]
        # the deeper end climbs; both do where they are equally deep
        climbs = apart & (depth >= depth[::-1])
        items[climbs] = tree.boxes + home[climbs]


def _key(tree: FrameTree, frame: Ints, kind: int, source: Ints) -> Ints:
    """One number for what a segment joins. Boxes are their own; a port is known by
    frame, kind and upper box.
    """
    border: Ints = 1 + 2 * frame + kind
    return tree.boxes * border + source


def _steps(tree: FrameTree, boxes: Ints, items: Ints) -> _Steps:
    """The segments of all edges: out of the frames of the upper box, across, into the
    frames of the lower one.
    """
    (upper, lower), (upper_item, lower_item) = boxes, items
    middle = int(tree.depth.max())
    out, out_key = _climb(tree, upper, upper_item, upper, EXIT)
    into, into_key = _climb(tree, lower, lower_item, upper, ENTRY)
    edge = np.arange(len(upper))
    across = _Steps(
        edge, np.full_like(edge, middle), tree.home[upper_item], out_key, into_key
    )
    into = [step._replace(turn=2 * middle - step.turn) for step in into]
    columns = zip(across, *out, *into)
    return _Steps(*(np.concatenate(column) for column in columns))


def _climb(
    tree: FrameTree, box: Ints, item: Ints, source: Ints, kind: int
) -> tuple[list[_Steps], Ints]:
    """Steps from boxes up to the items that hold them, and what the last step of each
    ends at.
    """
    reached, key = box.copy(), box.copy()
    steps: list[_Steps] = []
    climbing = np.flatnonzero(reached != item)

    while len(climbing):
        frame = tree.home[reached[climbing]]
        port = _key(tree, frame, kind, source[climbing])
        ends = key[climbing], port
        if kind == ENTRY:
            ends = ends[::-1]
        turn = np.full(len(climbing), len(steps))
        steps.append(_Steps(climbing, turn, frame, *ends))
        key[climbing] = port
        reached[climbing] = tree.boxes + frame
        climbing = climbing[reached[climbing] != item[climbing]]

    return steps, key


def _share(tree: FrameTree, steps: _Steps, source: Ints, upwards: Ints) -> Hierarchy:
    """Number the ports and draw every segment once."""
    n = max(tree.boxes, 1)  # without boxes there are no steps
    keys, index = np.unique(np.append(steps.upper, steps.lower), return_inverse=True)
    upper, lower, segment = distinct_pairs(index.reshape(2, -1), len(keys))
    upper, lower = keys[upper], keys[lower]
    port_keys = keys[keys >= n]
    port_frame, port_kind = np.divmod(port_keys // n - 1, 2)
    frame = np.empty(len(upper), np.int64)
    frame[segment] = steps.frame

    def nodes(key: Ints) -> tuple[Ints, Ints]:
        """The node of every end, and the port when that node is a frame: a port is seen
        from inside its frame, or from the drawing around it.
        """
        is_port = key >= n
        port = np.where(is_port, np.searchsorted(port_keys, key), -1)
        inside = np.append(port_frame, -1)[port]
        through = is_port & (inside != frame)
        node = np.where(is_port, n + tree.page + port, key)
        node[through] = n + port_frame[port[through]]
        return node, np.where(through, port, -1)

    upper_node, upper_port = nodes(upper)
    lower_node, lower_port = nodes(lower)
    order = np.lexsort((steps.turn, steps.edge))
    free = np.full(len(tree.home), FREE)
    return Hierarchy(
        tree=tree,
        edges=len(source),
        home=np.concatenate((tree.home, port_frame)),
        pin=np.append(free, PIN_OF[port_kind]),
        segments=Segments(frame, upper_node, lower_node, upper_port, lower_port),
        step_edge=steps.edge[order],
        step_segment=segment[order],
        upwards=upwards,
    )


# -- frames that feed each other -------------------------------------------------------

# Which edges must be drawn upwards so that each drawing still has rows. Boxes never
# form a cycle, but two frames do when each holds something that the other uses.


def against_the_stream(items: int, rank: Ints, edges: Ints, ends: Ints) -> Mask:
    """True for edges that have to go up; `ends` are the items of one drawing that hold
    their two boxes.

    Where items wait for each other, the one whose boxes lie higher on average goes
    first.
    """
    count = np.maximum(counts(ends.ravel(), items), 1)
    mean = np.bincount(ends.ravel(), rank[edges.T].ravel(), items) / count
    upper, lower, _ = distinct_pairs(ends, items)
    position = _line_up(items, upper, lower, mean)
    upwards: Mask = position[ends[0]] > position[ends[1]]
    return upwards


def _line_up(items: int, above: Ints, below: Ints, preference: Floats) -> Ints:
    """Put items in a line in which as few edges as may be go back: the place of each."""
    down = group(above, items)
    start = down.start.tolist()
    following = below[down.order].tolist()
    waiting = counts(below, items).tolist()
    ready = [item for item, count in enumerate(waiting) if not count]
    line: list[int] = []
    done = bytearray(items)

    for next_choice in [*np.argsort(preference, kind="stable").tolist(), -1]:
        while ready:
            item = ready.pop()
            if done[item]:
                continue
            done[item] = 1
            line.append(item)
            for other in following[start[item] : start[item + 1]]:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        if next_choice >= 0 and not done[next_choice]:
            ready.append(next_choice)

    return places(np.array(line, np.int64))
