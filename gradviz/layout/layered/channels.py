"""Side channels: edges too long for bend points in every row run down beside their component, in shared lines."""

from __future__ import annotations

import heapq

import numpy as np

from gradviz.layout.layered.adjacency import counts, distinct
from gradviz.layout.layered.layers import BEND_GAP, BEND_HALF_WIDTH, Layers
from gradviz.layout.layered.sheet import Sheet
from gradviz.layout.model import Floats, Ints


def channel_coordinates(sheet: Sheet, layers: Layers, x: Floats) -> Floats:
    """x of the channel of every edge in `layers.left_out`. Edges into one box, or else out of one box, share one."""
    edges = layers.left_out
    if not len(edges):
        return np.zeros(0)
    above, below = sheet.above[edges], sheet.below[edges]
    into, out_of = counts(below, sheet.size)[below], counts(above, sheet.size)[above]
    channels, channel = distinct(np.where(into >= out_of, below * 2, above * 2 + 1))
    first = np.full(len(channels), np.iinfo(np.int64).max)
    last = np.zeros(len(channels), np.int64)
    np.minimum.at(first, channel, layers.line[above] + 1)
    np.maximum.at(last, channel, layers.line[below] - 1)
    right = np.full(layers.components, -np.inf)
    np.maximum.at(right, layers.component, x + layers.half)
    component = np.zeros(len(channels), np.int64)
    component[channel] = layers.component[above]
    step = BEND_GAP * layers.gap + BEND_HALF_WIDTH
    nearest = right[component] + layers.gap
    return np.asarray(nearest + step * _tracks(component, first, last), dtype=np.float64)[channel]


def _tracks(component: Ints, first: Ints, last: Ints) -> Ints:
    """Number the channels of each component from 0 so that those with one number lie below one another."""
    track = np.zeros(len(first), np.int64)
    open_tracks: list[tuple[int, int]] = []  # (last line, track)
    free: list[int] = []
    current = -1
    for channel in np.lexsort((last, first, component)).tolist():
        if component[channel] != current:
            current, open_tracks, free = int(component[channel]), [], []
        while open_tracks and open_tracks[0][0] < first[channel]:
            heapq.heappush(free, heapq.heappop(open_tracks)[1])
        track[channel] = heapq.heappop(free) if free else len(open_tracks)
        heapq.heappush(open_tracks, (int(last[channel]), int(track[channel])))
    return track
