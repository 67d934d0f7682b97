"""Where the words beside edges stand: next to an edge's end or middle, wherever they
cover no box, no other words, no edge and no border of a frame, and no edge with other
words is as near.

An edge whose words fit nowhere gets none; its tooltip has them. This module knows
positions only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gradviz.draw.typesetting import SIZES, FrameBlock, Words, text_width
from gradviz.draw.wires import Curves, is_loop, loop_corners
from gradviz.layout import Floats, Ints, Rect
from gradviz.layout.layered.grouping import ranges

SIZE = 9.0
GAP = 4.0
WIDER = 1.2  # than what was measured are other fonts, which end nearer to other lines
AIR = 2.0
NEAR = 12.0  # how far around words lines are looked for
CLEAR = 2.0  # so much nearer to its own line nobody takes a label for another's
SOLID = -1  # the number of what is no line
STEP = 5.0  # at most this far apart are the points of a curve that a label keeps off
MOST = 400  # of them on one piece: that of a line as long as a page is wide
MAX_PIECES = 60  # of a curve, counted in control points
STRIP, STEPS = 128.0, 40  # px of one strip of curves, and points looked at on a piece
BORDER = 64.0  # the upright borders of frames come in pieces of at most this height


class Ground:
    """What words should not cover, from the top down, so that few of it are looked at
    for a place: solid rectangles, and points of lines, with the number of each one's
    words.
    """

    def __init__(self, solid: Floats, points: Floats, lines: Ints) -> None:
        rects = np.concatenate([solid, points])
        order = np.argsort(rects[:, 1], kind="stable")
        line = np.append(np.full(len(solid), SOLID), lines)
        self._line = line[order]
        x, y, width, height = rects[order].T
        self._tops = y.tolist()
        self._sides = x, x + width, y, y + height
        self._tallest = height.max(initial=0.0)
        self._words: defaultdict[float, list[Rect]] = defaultdict(list)

    def write(self, text: str, place: Rect) -> Words:
        """A line of text in a place, which is solid from now on."""
        self._words[place.y // SIZE].append(place)
        return Words(place.x, place.y + 0.8 * SIZE, text, "dim", place.width)

    def lead(self, place: Rect, own: int) -> float | None:
        """How much nearer words in a place are to a line that has them than to any
        other, up to NEAR; None where they cover something, with a little air around.
        """
        left, top, width, height = place
        right, bottom = left + width, top + height
        if self._is_written(place):
            return None

        # sorted by top: what starts more than the tallest above cannot reach down here
        first = bisect_left(self._tops, top - NEAR - self._tallest)
        last = bisect_left(self._tops, bottom + NEAR)
        nearby = [side[first:last] for side in self._sides]
        across = np.maximum(nearby[0] - right, left - nearby[1])
        along = np.maximum(nearby[2] - bottom, top - nearby[3])
        apart = np.maximum(across, along)
        if apart.min(initial=NEAR) < AIR:
            return None

        line = self._line[first:last]
        is_own = line == own
        nearest = apart[is_own].min(initial=NEAR)
        others = apart[~is_own & (line != SOLID)]
        return float(others.min(initial=NEAR) - nearest)

    def _is_written(self, place: Rect) -> bool:
        """Whether other words stand there, or close by."""
        left, top = place.x - AIR, place.y - AIR
        right = left + place.width + 2 * AIR
        bottom = top + place.height + 2 * AIR
        row = top // SIZE
        # words are filed by rows of SIZE, and with air reach over two at most
        for step in (-2, -1, 0, 1, 2, 3):
            for words in self._words.get(row + step, ()):
                across = words.x < right and left < words.x + words.width
                if across and words.y < bottom and top < words.y + words.height:
                    return True
        return False


def label_words(
    labels: Sequence[str],
    curves: Curves,
    boxes: Floats,
    room: Rect,
    frames: Sequence[FrameBlock] = (),
) -> Iterator[Words]:
    """Words that cover nothing and stay inside `room`, for the labels of curves, of
    which most are empty. `boxes` are rectangles.
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
    # lines that say the same are one
    number = {text: i for i, text in enumerate(dict.fromkeys(labels))}
    own = np.array([number[text] for text in labels])
    points, curve = samples(curves)
    solid = np.concatenate([boxes, _array(titles), borders])
    ground = Ground(solid, points, own[curve])
    beginnings: set[tuple[str, float, float]] = set()
    lines = np.split(curves.points, curves.starts[1:-1])
    pairs = zip(labels, lines)
    labelled = [(text, points) for text, points in pairs if text and len(points)]
    # a loop has most places to choose from
    labelled.sort(key=lambda line: is_loop(line[1]))
    for text, points in labelled:
        # what goes several ways from one place is said once where they part
        piece = points[3 * ((len(points) - 1) // 6)]
        beginning = (text, *np.round(piece).tolist())
        if beginning in beginnings:
            continue
        beginnings.add(beginning)

        place = _best(text, points, room, ground, number[text])
        if place is not None:
            yield ground.write(text, place)


def _array(rects: Iterable[Sequence[float]]) -> Floats:
    return np.array(list(rects), np.float64).reshape(-1, 4)


def _best(
    text: str, points: Floats, room: Rect, ground: Ground, own: int
) -> Rect | None:
    """The first place that is clearly at its own line; else the one with most of a lead
    over other lines.
    """
    fallback: Rect | None = None
    best = 0.0
    for place in _places(_anchors(points), text_width(text, SIZE)):
        lead = ground.lead(place, own) if _inside(place, room) else None
        if lead is not None and lead >= CLEAR:
            return place
        if lead is not None and lead > best:
            fallback, best = place, lead
    return fallback


def _anchors(points: Floats) -> Iterator[list[float]]:
    """Points of a curve to write beside: its end, its middle, its start, and the middle
    of each piece.
    """
    piece = 3 * ((len(points) - 1) // 6)
    yield points[-1].tolist()
    middle = points[piece : piece + 4]
    parts = np.array([0.5, 0.25, 0.75])
    yield from bezier(middle, parts).tolist()
    yield points[0].tolist()
    last = min(len(points) - 3, MAX_PIECES)
    first = np.arange(0, last, 3)
    pieces = points[first + np.arange(4)[:, None]]
    halves = np.full(len(first), 0.5)
    yield from bezier(pieces, halves).tolist()
    yield from loop_corners(points)


def _places(anchors: Iterable[Sequence[float]], width: float) -> Iterator[Rect]:
    """Right and left of each point, above it, beside it and below."""
    for x, y in anchors:
        for shift in (-SIZE - 2 * GAP, -SIZE / 2, GAP):
            yield Rect(x + GAP, y + shift, WIDER * width, SIZE + 1.0)
            yield Rect(x - GAP - width, y + shift, width, SIZE + 1.0)


def samples(curves: Curves) -> tuple[Floats, Ints]:
    """Points along every curve, as rectangles without a size, so close together that
    no word fits between them; and which curve each is of.
    """
    pieces, curve = _pieces(curves.points, curves.starts)
    lengths = np.abs(np.diff(pieces, axis=1)).sum(axis=(1, 2))
    steps = np.minimum(lengths / STEP, MOST).astype(np.int64) + 2
    piece, step = ranges(steps)
    points = bezier(pieces[piece].swapaxes(0, 1), step / (steps - 1)[piece])
    rects = np.concatenate([points, np.zeros_like(points)], axis=1)
    return rects, curve[piece]


def _pieces(points: Floats, starts: Ints) -> tuple[Floats, Ints]:
    """The control points of all pieces of curves, and which curve each is of."""
    curve, number = ranges(np.maximum(np.diff(starts) - 1, 0) // 3)
    first = starts[curve] + 3 * number
    return points[first[:, None] + np.arange(4)], curve


class Crossings:
    """Where curves pass a height. Only those of a strip around it are looked at."""

    def __init__(self, points: Floats, starts: Ints) -> None:
        pieces, _ = _pieces(points, starts)
        first, last = (np.sort(pieces[:, ::3, 1]).T / STRIP).astype(np.int64)
        piece, number = ranges(last - first + 1)
        strip = first[piece] + number
        order = np.argsort(strip, kind="stable")
        self._strips, self._pieces = strip[order], pieces[piece[order]]

    def near(self, height: float) -> Floats:
        """The stretches from left to right in which curves are about that high, by
        their ends, of shape (n, 2).
        """
        strip = int(height / STRIP)
        first, last = np.searchsorted(self._strips, [strip, strip + 1])
        pieces = self._pieces[first:last].swapaxes(0, 1)[:, :, None]
        x, y = bezier(pieces, np.linspace(0.0, 1.0, STEPS)).T
        # of a long piece the points are further apart
        is_near = np.abs(y - height) <= SIZE / 2 + np.ptp(y, 0) / STEPS
        left = x.min(0, initial=np.inf, where=is_near)
        right = x.max(0, initial=-np.inf, where=is_near)
        found: Floats = np.column_stack((left, right))[left <= right]
        return found


def _borders(frames: Floats) -> Floats:
    """The four sides of frames as thin rectangles."""
    x, y, width, height = frames.T
    level = np.zeros_like(x)
    pieces = np.ceil(height / BORDER).astype(np.int64)
    frame, number = ranges(pieces)
    tall = (height / np.maximum(pieces, 1))[frame]
    tops = y[frame] + tall * number
    sides = [(side[frame], tops, np.zeros_like(tops), tall) for side in (x, x + width)]
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
    right, bottom = room.x + room.width, room.y + room.height
    if rect.x < room.x or rect.x + rect.width > right:
        return False
    return room.y <= rect.y and rect.y + rect.height <= bottom
