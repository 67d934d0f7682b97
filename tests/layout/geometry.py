"""Independent checks of a placement by plain geometry: what overlaps, what an edge runs through, where it ends."""

from __future__ import annotations

import itertools

import numpy as np

from gradviz.layout import Drawing, Floats, Placement, Rect

TOLERANCE = 1e-3  # px


def rectangles(drawing: Drawing, placement: Placement) -> Floats:
    """(n, 4) left, top, right, bottom of every box."""
    x, y, w, h = placement.x, placement.y, drawing.widths / 2, drawing.heights / 2
    return np.column_stack((x - w, y - h, x + w, y + h))


def frame_rectangles(frames: tuple[Rect, ...]) -> Floats:
    """(f, 4) left, top, right, bottom of every frame."""
    return np.array([(r.x, r.y, r.x + r.width, r.y + r.height) for r in frames]).reshape(-1, 4)


def overlapping_pairs(boxes: Floats) -> list[tuple[int, int]]:
    """Pairs of rectangles that share more than their borders, by a sweep from top to bottom."""
    found: list[tuple[int, int]] = []
    active: list[int] = []
    for i in np.argsort(boxes[:, 1], kind="stable").tolist():
        active = [j for j in active if boxes[j, 3] > boxes[i, 1] + TOLERANCE]
        near = np.array(active, np.int64)
        hit = (boxes[near, 0] < boxes[i, 2] - TOLERANCE) & (boxes[near, 2] > boxes[i, 0] + TOLERANCE)
        found.extend((int(j), i) for j in near[hit])
        active.append(i)
    return found


def boxes_cut(drawing: Drawing, placement: Placement) -> list[tuple[int, int]]:
    """(edge, box) wherever an edge runs through a box that is not one of its ends."""
    boxes = rectangles(drawing, placement)
    found: list[tuple[int, int]] = []
    for edge, (above, below) in enumerate(drawing.edges.tolist()):
        points = placement.points[placement.starts[edge] : placement.starts[edge + 1]]
        for a, b in itertools.pairwise(points):
            hit = np.flatnonzero(segment_hits(a, b, boxes))
            found.extend((edge, int(box)) for box in hit if box not in (above, below))
    return found


def segment_hits(a: Floats, b: Floats, boxes: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rectangles the segment from a to b passes through, by clipping it to each (Liang and Barsky)."""
    first, last = np.zeros(len(boxes)), np.ones(len(boxes))
    inside = np.ones(len(boxes), np.bool_)
    for axis in (0, 1):
        low, high = boxes[:, axis] + TOLERANCE, boxes[:, axis + 2] - TOLERANCE
        step = b[axis] - a[axis]
        if abs(step) < 1e-12:
            inside &= (a[axis] > low) & (a[axis] < high)
            continue
        one, other = (low - a[axis]) / step, (high - a[axis]) / step
        first, last = np.maximum(first, np.minimum(one, other)), np.minimum(last, np.maximum(one, other))
    return inside & (first < last)


def loose_ends(drawing: Drawing, placement: Placement) -> list[int]:
    """Edges that do not begin at the border of the box above and end at that of the box below."""
    boxes = rectangles(drawing, placement)
    found = []
    for edge, ends in enumerate(drawing.edges.tolist()):
        points = placement.points[placement.starts[edge] : placement.starts[edge + 1]]
        if ends[0] == ends[1]:
            if len(points):
                found.append(edge)
        elif len(points) < 2 or not all(on_border(p, boxes[box]) for p, box in zip(points[[0, -1]], ends)):
            found.append(edge)
    return found


def on_border(point: Floats, box: Floats) -> bool:
    """Whether a point lies on the border of a rectangle."""
    inside = (box[:2] - TOLERANCE <= point) & (point <= box[2:] + TOLERANCE)
    on_a_side = (abs(point - box[:2]) < TOLERANCE) | (abs(point - box[2:]) < TOLERANCE)
    return bool(inside.all() and on_a_side.any())


def count_crossings(placement: Placement) -> int:
    """Proper crossings between the segments of different edges, comparing all pairs that share some y."""
    starts, points = placement.starts, placement.points
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    same = owner[:-1] == owner[1:]
    a, b, edge = points[:-1][same], points[1:][same], owner[:-1][same]
    top, bottom = np.minimum(a[:, 1], b[:, 1]), np.maximum(a[:, 1], b[:, 1])
    order = np.argsort(top, kind="stable")
    a, b, edge, top, bottom = a[order], b[order], edge[order], top[order], bottom[order]
    total = 0
    for i in range(len(a)):
        end = int(np.searchsorted(top, bottom[i], side="left"))
        other = slice(i + 1, end)
        crossed = _turn(a[i], b[i], a[other]) * _turn(a[i], b[i], b[other]) < -TOLERANCE
        crossed &= _turn(a[other], b[other], a[i]) * _turn(a[other], b[other], b[i]) < -TOLERANCE
        total += int((crossed & (edge[other] != edge[i])).sum())
    return total


def _turn(a: Floats, b: Floats, c: Floats) -> Floats:
    """Above 0 where c lies to one side of the line from a to b, below 0 on the other, 0 on it."""
    cross: Floats = (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (
        c[..., 0] - a[..., 0]
    )
    return cross
