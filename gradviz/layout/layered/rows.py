"""How high every row is and where each box stands in its row. Knows no x."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import counts
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.sheet import BOTTOM, TOP, Sheet
from gradviz.layout.model import Floats

PORT_GAP = 0.6  # of the gap between rows, beside a border


class Rows(NamedTuple):
    """Rows by line number; y counts from the top of the component."""

    top: Floats  # (lines,)
    bottom: Floats
    y: Floats  # (boxes,) middle of every box
    height: Floats  # (components,)


def place_rows(sheet: Sheet, layers: Layers) -> Rows:
    """Rows as high as their highest box. Boxes without inputs stand at the bottom of theirs, unused ones at the top."""
    line = layers.line[: layers.boxes]
    first = layers.first_line[:-1]
    tall = np.zeros(int(layers.first_line[-1]))
    np.maximum.at(tall, line, sheet.heights)
    gap = np.full(len(tall), sheet.rank_gap)  # below each row
    gap[line[sheet.pin == TOP]] *= PORT_GAP
    gap[line[sheet.pin == BOTTOM] - 1] *= PORT_GAP
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
