"""Where the words beside edges stand: next to an edge's end or middle, wherever they
cover no box and no other words.

They keep off edges and the borders of frames too, where any place allows that.

An edge whose words fit nowhere gets none; its tooltip has them. This module knows
positions only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from gradviz.draw.typesetting import SIZES, FrameBlock, Words, text_width
from gradviz.draw.wires import Curves
from gradviz.layout import Floats, Rect

SIZE = 9.0
GAP = 4.0
AIR = 2.0
STEP = 6.0  # at most this far apart are the points of a curve that a label keeps off
# of all curves together: beyond, labels keep off boxes and words only
MAX_STEPS = 6_000
MAX_PIECES = 60  # of a curve, counted in control points
CELL = 64.0  # side of the squares of the index of what is taken


class _Taken:
    """Rectangles by the squares they touch, to ask quickly what a new one would cover."""

    def __init__(self, rects: Iterable[Rect]) -> None:
        self.squares: defaultdict[tuple[int, int], list[Rect]] = defaultdict(list)
        for rect in rects:
            self.add(rect)

    def add(self, rect: Rect) -> None:
        for square in _squares(rect):
            self.squares[square].append(rect)

    def write(self, text: str, rect: Rect) -> Words:
        """A line of text in a rectangle, which is taken from now on."""
        self.add(rect)
        return Words(
            rect.x,
            rect.y + 0.8 * SIZE,
            text,
            "dim",
            rect.width,
        )

    def is_free(self, rect: Rect) -> bool:
        """Whether a rectangle with a little air around it touches nothing."""
        wide = Rect(
            rect.x - AIR,
            rect.y - AIR,
            rect.width + 2 * AIR,
            rect.height + 2 * AIR,
        )
        return not any(
            _overlap(wide, other)
            for square in _squares(wide)
            for other in self.squares.get(square, ())
        )


def _squares(rect: Rect) -> Iterator[tuple[int, int]]:
    for i in range(
        int(rect.x // CELL),
        int((rect.x + rect.width) // CELL) + 1,
    ):
        for j in range(
            int(rect.y // CELL),
            int((rect.y + rect.height) // CELL) + 1,
        ):
            yield i, j


def _overlap(rect: Rect, other: Rect) -> bool:
    across = rect.x < other.x + other.width and other.x < rect.x + rect.width
    return across and rect.y < other.y + other.height and other.y < rect.y + rect.height


def label_words(
    labels: Sequence[str],
    curves: Curves,
    boxes: Iterable[Rect],
    room: Rect,
    frames: Sequence[FrameBlock] = (),
) -> Iterator[Words]:
    """Words for the labels (one for each curve, mostly empty) that cover nothing and
    stay inside `room`.

    In a drawing of moderate size they keep off the curves and the frames' borders too,
    where any place allows that.
    """
    if not any(labels):
        return

    taken = _Taken(
        chain(
            boxes,
            (_room(words) for frame in frames for words in frame.words),
        )
    )
    lines = _Taken(chain(_samples(curves), _borders(frames)))
    beginnings: set[tuple[str, float, float]] = set()
    for i, label in enumerate(labels):
        points = curves.points[curves.starts[i] : curves.starts[i + 1]]
        if label and len(points):
            # what goes several ways from one place is said once where they part
            piece = points[3 * ((len(points) - 1) // 6)]
            beginning = (label, *np.round(piece).tolist())
            if beginning in beginnings:
                continue
            beginnings.add(beginning)
            rect = _best(
                _candidates(points, text_width(label, SIZE)), room, taken, lines
            )
            if rect is not None:
                yield taken.write(label, rect)


def _best(
    places: Iterator[Rect], room: Rect, taken: _Taken, lines: _Taken
) -> Rect | None:
    """The first place that is free of boxes, words and curves; else the first that is
    free of boxes and words.
    """
    fallback: Rect | None = None
    for place in places:
        if _inside(place, room) and taken.is_free(place):
            if lines.is_free(place):
                return place
            fallback = fallback or place
    return fallback


def _candidates(points: Floats, width: float) -> Iterator[Rect]:
    """Places beside the curve: right and left of its end, of its middle, of its start,
    and of the middle of each piece.
    """
    piece = 3 * ((len(points) - 1) // 6)
    between = bezier(
        points[piece : piece + 4],
        np.array([0.5, 0.25, 0.75]),
    )
    others = [
        bezier(
            points[i : i + 4],
            np.array([0.5]),
        )
        for i in range(
            0,
            min(len(points) - 3, MAX_PIECES),
            3,
        )
    ]

    for x, y in (
        points[-1].tolist(),
        *between.tolist(),
        points[0].tolist(),
        *(point.tolist()[0] for point in others),
    ):
        for shift in (-SIZE - 2 * GAP, -SIZE / 2, GAP):
            yield Rect(x + GAP, y + shift, width, SIZE + 1.0)
            yield Rect(x - GAP - width, y + shift, width, SIZE + 1.0)


def _samples(curves: Curves) -> list[Rect]:
    """Points along every curve, close enough together that no word fits between them.

    Of those that nearly coincide there is one, so a place is compared with few of them
    however many curves pass it.
    """
    pieces = [
        i
        for start, end in zip(
            curves.starts[:-1],
            curves.starts[1:],
        )
        for i in range(start, end - 3, 3)
    ]
    length = np.abs(np.diff(curves.points, axis=0)).sum(axis=1) / STEP
    steps = [int(length[i : i + 3].sum()) + 2 for i in pieces]
    if not pieces or sum(steps) > MAX_STEPS:
        return []

    points = [
        bezier(
            curves.points[i : i + 4],
            np.linspace(0.0, 1.0, n),
        )
        for i, n in zip(pieces, steps)
    ]
    every = np.concatenate(points)
    _, distinct = np.unique(
        np.floor(every / AIR),
        axis=0,
        return_index=True,
    )

    return [Rect(x, y, 0.0, 0.0) for x, y in every[np.sort(distinct)].tolist()]


def _borders(frames: Sequence[FrameBlock]) -> Iterator[Rect]:
    for x, y, width, height in (frame.rect for frame in frames):
        yield from (Rect(x, y, width, 0.0), Rect(x, y + height, width, 0.0))
        yield from (Rect(x, y, 0.0, height), Rect(x + width, y, 0.0, height))


def _room(words: Words) -> Rect:
    return Rect(
        words.x,
        words.y - SIZES["dim"],
        words.width,
        SIZES["dim"],
    )


def bezier(piece: Floats, parameters: Floats) -> Floats:
    """Points of one cubic Bezier piece at the given parameters."""
    t, rest = parameters[:, None], 1.0 - parameters[:, None]
    points: Floats = (
        rest**3 * piece[0]
        + 3 * rest**2 * t * piece[1]
        + 3 * rest * t**2 * piece[2]
        + t**3 * piece[3]
    )
    return points


def _inside(rect: Rect, room: Rect) -> bool:
    across = room.x <= rect.x and rect.x + rect.width <= room.x + room.width
    return across and room.y <= rect.y and rect.y + rect.height <= room.y + room.height
