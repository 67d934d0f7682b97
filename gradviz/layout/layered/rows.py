"""How high every row is, where each box stands in its row, and how much room lies between the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import counts
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.sheet import BOTTOM, TOP, Sheet
from gradviz.layout.model import Floats

PORT_GAP = 0.6  # of the gap between rows, beside a border
LEVEL_FREE = 200.0  # px that an edge may go sideways between rows before they move apart
LEVEL = 600.0  # px further sideways for every gap more
MOST_GAPS = 3.0


class Rows(NamedTuple):
    """Rows by line number; y counts from the top of the component."""

    top: Floats  # (lines,)
    bottom: Floats
    y: Floats  # (boxes,) middle of every box
    height: Floats  # (components,)


def place_rows(sheet: Sheet, layers: Layers, x: Floats) -> Rows:
    """Rows as high as their highest box. Boxes without inputs stand at the bottom of theirs, unused ones at the top."""
    line = layers.line[: layers.boxes]
    first = layers.first_line[:-1]
    tall = np.zeros(int(layers.first_line[-1]))
    np.maximum.at(tall, line, sheet.heights)
    gap = _gaps(sheet, layers, x)
    bottom = np.cumsum(tall + gap) - gap
    component_of_line = np.repeat(np.arange(layers.components), np.diff(layers.first_line))
    origin = (bottom - tall)[first]
    bottom = bottom - origin[component_of_line]
    top = bottom - tall
    slack = tall[line] - sheet.heights
    share = np.full(layers.boxes, 0.5)
    share[counts(sheet.below, layers.boxes) == 0] = 1.0
    share[counts(sheet.above, layers.boxes) == 0] = 0.0
    return Rows(top, bottom, top[line] + slack * share + sheet.heights / 2, bottom[layers.first_line[1:] - 1])


def _gaps(sheet: Sheet, layers: Layers, x: Floats) -> Floats:
    """Room below every row. Edges that go far sideways get more, or they would be nearly level and hard to follow."""
    aside = x[layers.below] - x[layers.above] - layers.above_offset + layers.below_offset
    furthest = np.zeros(int(layers.first_line[-1]))
    np.maximum.at(furthest, layers.line[layers.above], np.abs(aside))
    gap = sheet.rank_gap * np.minimum(1 + np.maximum(furthest - LEVEL_FREE, 0) / LEVEL, MOST_GAPS)
    line = layers.line[: layers.boxes]
    gap[line[sheet.pin == TOP]] *= PORT_GAP
    gap[line[sheet.pin == BOTTOM] - 1] *= PORT_GAP
    return gap
