"""The halves of a U beside each other, and the lines that lead into them, from one to
the other, and out of them.

The right half is upside down: lines enter it from below and leave it at the top. Skips
are not among them: they cross the channel between the halves on their level lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats
from gradviz.layout.layered.routes import PORT_GAP, TURN, Routes, as_routes

CHANNEL = 110.0  # px between the halves, where skips have their words
LANE = 12.0  # px between two lines that turn

LEFT, RIGHT, BORDER = range(3)


class HalfLine(NamedTuple):
    """What a line leads from and to: a half, so far from its middle, or a port in the
    border around both.
    """

    begin: int
    end: int
    begin_offset: float
    end_offset: float
    source: int  # lines that enter through one port have one source


class Halves(NamedTuple):
    """Where everything went, from the upper left corner of what is drawn."""

    middles: Floats  # (2, 2)
    routes: Routes
    size: Floats  # (2,)


def place_halves(
    sizes: Floats, drop: float, lines: Sequence[HalfLine], gap: float, rank_gap: float
) -> Halves:
    """Place two halves of these sizes, the middle of the right one `drop` below that of
    the left one.
    """
    wide, high = sizes.T
    channel, right = wide[LEFT] + CHANNEL / 2, wide[LEFT] + CHANNEL + wide[RIGHT]
    middle = np.array([wide[LEFT] / 2, right - wide[RIGHT] / 2, channel])
    y = np.array([0.0, drop])
    roof, floor = y - high / 2, y + high / 2

    def from_right(line: HalfLine) -> float:
        """Lines that begin further right turn within the others."""
        return -float(middle[line.begin] + line.begin_offset)

    entering = sorted((line for line in lines if line.end == RIGHT), key=from_right)
    leaving = sorted((line for line in lines if line.begin == RIGHT), key=from_right)
    under = [floor.max() + TURN + LANE * lane for lane in range(len(entering))]
    over = [roof[RIGHT] - TURN - LANE * lane for lane in range(len(leaving))]
    port_gap = PORT_GAP * rank_gap
    top = min([*roof, *over]) - port_gap * any(line.begin == BORDER for line in lines)
    low = max([*floor, *under]) + port_gap * any(line.end == BORDER for line in lines)
    begin_y, end_y = (floor[LEFT], roof[RIGHT], top), (roof[LEFT], floor[RIGHT], low)

    routes: list[Floats] = []
    port_x: dict[int, float] = {}
    for line in lines:
        x = middle[line.begin] + line.begin_offset
        to = middle[line.end] + line.end_offset
        turn: list[list[float]] = []
        if line.end == RIGHT:
            lane = under[entering.index(line)]
            entry = begin_y[line.begin] + port_gap
            turn = [[x, entry], [x, lane], [to, lane]]
        elif line.begin == RIGHT:
            number = leaving.index(line)
            to = right + gap + LANE * number
            turn = [[x, over[number]], [to, over[number]]]
        elif line.end == BORDER:
            to = x
        else:
            x = port_x[line.source] = to
        points = [[x, begin_y[line.begin]], *turn, [to, end_y[line.end]]]
        routes.append(np.array(points) - [0.0, top])

    # a line that enters both halves begins above the left one
    for line, route in zip(lines, routes):
        if line.begin == BORDER:
            route[0, 0] = port_x.get(line.source, route[0, 0])
    width = right + (gap + LANE * len(leaving)) * bool(leaving)
    middles = np.column_stack((middle[:2], y - top))
    return Halves(middles, as_routes(routes), np.array([width, low - top]))
