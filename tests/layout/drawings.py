"""Builders of drawings, and the facts that every placement of one must satisfy, whoever made it."""

from __future__ import annotations

import itertools

import numpy as np

from gradviz.layout import Drawing, LayoutFrame, Placement


def drawing(size, edges, *, frame_of=None, frames=(), width=60.0, height=24.0) -> Drawing:
    """Boxes of one size (or of the sizes given)."""
    return Drawing(
        widths=np.broadcast_to(np.asarray(width, dtype=np.float64), size).copy(),
        heights=np.broadcast_to(np.asarray(height, dtype=np.float64), size).copy(),
        edges=np.array(list(edges), dtype=np.int64).reshape(-1, 2),
        frame_of=np.full(size, -1) if frame_of is None else np.asarray(frame_of, dtype=np.int64),
        frames=tuple(frames),
    )


def chain(size, **keywords) -> Drawing:
    return drawing(size, [(i, i + 1) for i in range(size - 1)], **keywords)


def random_dag(seed: int, size: int = 40) -> Drawing:
    """Boxes of random sizes, random downward edges, two nested frames and one beside them."""
    random = np.random.default_rng(seed)
    below = random.integers(1, size, size=size * 2)
    edges = [(int(random.integers(0, b)), int(b)) for b in below]
    frame_of = np.full(size, -1)
    frame_of[4:16], frame_of[8:12], frame_of[20:30] = 0, 1, 2
    frames = (LayoutFrame(None, 90, 14), LayoutFrame(0, 300, 20), LayoutFrame(None, 40, 30))
    sizes = {"width": random.uniform(20, 160, size), "height": random.uniform(14, 60, size)}
    return drawing(size, edges, frame_of=frame_of, frames=frames, **sizes)


def boxes(drawn: Drawing, placed: Placement) -> np.ndarray:
    """Left, top, right and bottom of every box."""
    half_width, half_height = drawn.widths / 2, drawn.heights / 2
    sides = (placed.x - half_width, placed.y - half_height, placed.x + half_width, placed.y + half_height)
    return np.stack(sides, axis=1)


def routes(placed: Placement) -> list[np.ndarray]:
    return [placed.points[start:end] for start, end in itertools.pairwise(placed.starts.tolist())]


def overlapping(rects: np.ndarray, *, slack: float = 0.5) -> list[tuple[int, int]]:
    """Pairs of rectangles that cover each other, by brute force."""
    left, top, right, bottom = rects.T
    apart_x = (left[:, None] >= right[None, :] - slack) | (right[:, None] <= left[None, :] + slack)
    apart_y = (top[:, None] >= bottom[None, :] - slack) | (bottom[:, None] <= top[None, :] + slack)
    return [(int(a), int(b)) for a, b in np.argwhere(~(apart_x | apart_y)) if a < b]


def chain_of_frames(drawn: Drawing, box: int) -> set[int]:
    """Every frame around a box."""
    found: set[int] = set()
    frame: int | None = int(drawn.frame_of[box])
    while frame is not None and frame >= 0:
        found.add(frame)
        frame = drawn.frames[frame].parent
    return found


def check_boxes(drawn: Drawing, placed: Placement) -> None:
    """Boxes keep apart and lie inside the drawing."""
    rects = boxes(drawn, placed)
    assert overlapping(rects) == []
    assert rects[:, :2].min() >= -0.01
    assert rects[:, 2].max() <= placed.width + 0.01 and rects[:, 3].max() <= placed.height + 0.01


def check_routes(drawn: Drawing, placed: Placement, *, slack: float = 1.0) -> None:
    """Every edge but a self-loop runs from the border of the box above to the border of the box below."""
    rects = boxes(drawn, placed)
    assert len(placed.starts) == len(drawn.edges) + 1
    for (above, below), route in zip(drawn.edges.tolist(), routes(placed), strict=True):
        if above == below:
            assert len(route) == 0
            continue
        assert len(route) >= 2
        for box, point in ((above, route[0]), (below, route[-1])):
            left, top, right, bottom = rects[box]
            outside = max(left - point[0], point[0] - right, top - point[1], point[1] - bottom)
            assert abs(outside) <= slack, (above, below, point, rects[box])


def check_frames(drawn: Drawing, placed: Placement) -> None:
    """A frame holds its own boxes below its title, its child frames, and nothing else."""
    rects = boxes(drawn, placed)
    around = [chain_of_frames(drawn, box) for box in range(drawn.size)]
    for index, (frame, rect) in enumerate(zip(drawn.frames, placed.frames, strict=True)):
        mine = [box for box in range(drawn.size) if index in around[box]]
        if not mine:
            continue
        others = [box for box in range(drawn.size) if index not in around[box]]
        assert rects[mine, 0].min() >= rect.x and rects[mine, 2].max() <= rect.x + rect.width
        assert rects[mine, 1].min() >= rect.y + frame.title_height
        assert rects[mine, 3].max() <= rect.y + rect.height
        assert rect.width >= frame.title_width
        border = np.array([[rect.x, rect.y, rect.x + rect.width, rect.y + rect.height]])
        assert not [pair for pair in overlapping(np.concatenate([border, rects[others]])) if pair[0] == 0]
        if frame.parent is not None:
            outer = placed.frames[frame.parent]
            assert outer.x < rect.x and rect.x + rect.width < outer.x + outer.width
            assert outer.y + drawn.frames[frame.parent].title_height <= rect.y
