"""Where the words beside edges stand: next to an edge's end or middle, wherever they
cover no box, no other words, no edge and no border of a frame.

Where no place is free of edges, a label is written without its shape; where that finds
none either, at the place that covers least of them. An edge whose words fit nowhere
gets none; its tooltip has them. This module knows positions only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gradviz.draw.typesetting import SIZES, FrameBlock, Words, text_width
from gradviz.draw.wires import Curves, is_loop, loop_corners, within
from gradviz.layout import Floats, Rect

SIZE = 9.0
GAP = 4.0
AIR = 2.0
STEP = 10.0  # at most this far apart are the points of a curve that a label keeps off
MAX_PIECES = 60  # of a curve, counted in control points
BORDER = 64.0  # the upright borders of frames come in pieces of at most this height


class Ground:
    """What words should not cover, from the top down, so that few of it are looked at
    for a place; what is solid they never cover.
    """

    def __init__(self, solid: Floats, lines: Floats) -> None:
        rects = np.concatenate([solid, lines])
        order = np.argsort(rects[:, 1], kind="stable")
        self._is_solid = order < len(solid)
        x, y, width, height = rects[order].T
        self._tops = y.tolist()
        self._sides = x, x + width, y + height
        self._tallest = height.max(initial=0.0)
        self._words: defaultdict[float, list[Rect]] = defaultdict(list)

    def write(self, text: str, place: Rect) -> Words:
        """A line of text in a place, which is solid from now on."""
        self._words[place.y // SIZE].append(place)
        return Words(
            place.x,
            place.y + 0.8 * SIZE,
            text,
            "dim",
            place.width,
        )

    def covered(self, place: Rect) -> int | None:
        """How many points of lines words cover with a little air around them; None
        where they cover something solid.
        """
        left, top = place.x - AIR, place.y - AIR
        right = left + place.width + 2 * AIR
        bottom = top + place.height + 2 * AIR
        # sorted by top: what starts more than the tallest above cannot reach down here
        first = bisect_left(self._tops, top - self._tallest)
        last = bisect_left(self._tops, bottom)
        from_left, to_right, bottoms = (side[first:last] for side in self._sides)

        hit = (from_left < right) & (to_right > left) & (bottoms > top)
        if np.count_nonzero(hit & self._is_solid[first:last]):
            return None

        row = place.y // SIZE
        # words are filed by rows of SIZE, and with air reach over two at most
        for step in (-2, -1, 0, 1, 2):
            for words in self._words.get(row + step, ()):
                across = words.x < right and left < words.x + words.width
                if across and words.y < bottom and top < words.y + words.height:
                    return None
        return int(np.count_nonzero(hit))


def label_words(
    labels: Sequence[Sequence[str]],
    curves: Curves,
    boxes: Floats,
    room: Rect,
    frames: Sequence[FrameBlock] = (),
) -> Iterator[Words]:
    """Words that cover nothing and stay inside `room`, for the labels: of each curve
    the texts to choose from, the best one first, mostly none. `boxes` are rectangles.
    """
    if not any(labels):
        return

    small = SIZES["dim"]
    titles = [
        (words.x, words.y - small, words.width, small)
        for frame in frames
        for words in frame.words
    ]
    borders = _borders(_array(frame.rect for frame in frames))
    ground = Ground(
        np.concatenate([boxes, _array(titles)]),
        np.concatenate([borders, samples(curves)]),
    )
    beginnings: set[tuple[str, float, float]] = set()
    lines = np.split(curves.points, curves.starts[1:-1])
    labelled = [
        (texts, points) for texts, points in zip(labels, lines) if texts and len(points)
    ]
    # a loop has most places to choose from
    labelled.sort(key=lambda line: is_loop(line[1]))
    for texts, points in labelled:
        # what goes several ways from one place is said once where they part
        piece = points[3 * ((len(points) - 1) // 6)]
        beginning = (texts[0], *np.round(piece).tolist())
        if beginning in beginnings:
            continue
        beginnings.add(beginning)

        best = _best(texts, points, room, ground)
        if best is not None:
            yield ground.write(*best)


def _array(rects: Iterable[Sequence[float]]) -> Floats:
    return np.array(list(rects), np.float64).reshape(-1, 4)


def _best(
    texts: Sequence[str],
    points: Floats,
    room: Rect,
    ground: Ground,
) -> tuple[str, Rect] | None:
    """The first text with a place that covers nothing; else the last one, where it
    covers nothing solid, and least of the lines.
    """
    for text in texts:
        fallback: tuple[str, Rect] | None = None
        least = 0
        for place in _places(_anchors(points), text_width(text, SIZE)):
            covered = ground.covered(place) if _inside(place, room) else None
            if covered == 0:
                return text, place
            if covered and (fallback is None or covered < least):
                fallback, least = (text, place), covered
    return fallback


def _anchors(points: Floats) -> Iterator[list[float]]:
    """Points of a curve to write beside: its end, its middle, its start, and the middle
    of each piece.
    """
    piece = 3 * ((len(points) - 1) // 6)
    yield points[-1].tolist()
    middle = points[piece : piece + 4]
    yield from bezier(middle, np.array([0.5, 0.25, 0.75])).tolist()
    yield points[0].tolist()
    first = np.arange(0, min(len(points) - 3, MAX_PIECES), 3)
    pieces = points[first + np.arange(4)[:, None]]
    yield from bezier(pieces, np.full(len(first), 0.5)).tolist()
    yield from loop_corners(points)


def _places(
    anchors: Iterable[Sequence[float]],
    width: float,
) -> Iterator[Rect]:
    """Right and left of each point, above it, beside it and below."""
    for x, y in anchors:
        for shift in (-SIZE - 2 * GAP, -SIZE / 2, GAP):
            yield Rect(x + GAP, y + shift, width, SIZE + 1.0)
            yield Rect(x - GAP - width, y + shift, width, SIZE + 1.0)


def samples(curves: Curves) -> Floats:
    """Points along every curve, as rectangles without a size, so close together that
    no word fits between them.
    """
    counts = np.maximum(np.diff(curves.starts) - 1, 0) // 3
    first = np.repeat(curves.starts[:-1], counts) + 3 * within(counts)
    pieces = curves.points[first[:, None] + np.arange(4)]
    lengths = np.abs(np.diff(pieces, axis=1)).sum(axis=(1, 2))
    steps = (lengths / STEP).astype(np.int64) + 2
    along = within(steps) / np.repeat(steps - 1, steps)
    controls = np.repeat(pieces, steps, axis=0).swapaxes(0, 1)
    points = bezier(controls, along)
    return np.concatenate([points, np.zeros_like(points)], axis=1)


def _borders(frames: Floats) -> Floats:
    """The four sides of frames as thin rectangles."""
    x, y, width, height = frames.T
    level = np.zeros_like(x)
    pieces = np.ceil(height / BORDER).astype(np.int64)
    tall = np.repeat(height / np.maximum(pieces, 1), pieces)
    tops = np.repeat(y, pieces) + tall * within(pieces)
    sides = [
        (np.repeat(side, pieces), tops, np.zeros_like(tops), tall)
        for side in (x, x + width)
    ]
    sides += [(x, end, width, level) for end in (y, y + height)]
    return np.concatenate([np.column_stack(side) for side in sides])


def bezier(piece: Floats, parameters: Floats) -> Floats:
    """Points of one cubic Bezier piece at the given parameters, or of a piece for each."""
    t, rest = parameters[:, None], 1.0 - parameters[:, None]
    # products, since a third power takes numpy ten times as long
    before, behind = rest * rest, t * t
    points: Floats = (
        before * rest * piece[0]
        + 3 * before * t * piece[1]
        + 3 * rest * behind * piece[2]
        + behind * t * piece[3]
    )
    return points


def _inside(rect: Rect, room: Rect) -> bool:
    across = room.x <= rect.x and rect.x + rect.width <= room.x + room.width
    return across and room.y <= rect.y and rect.y + rect.height <= room.y + room.height
