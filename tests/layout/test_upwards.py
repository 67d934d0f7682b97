"""Drawings whose edges form a cycle are placed, too, with some edges upwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradviz.layout import Drawing, LayoutFrame, Placement, layered
from tests.layout.geometry import frame_rectangles, loose_ends, overlapping_pairs, rectangles
from tests.layout.networks import plain


@st.composite
def tangles(draw: st.DrawFn) -> Drawing:
    """Any edges between up to 12 boxes."""
    size = draw(st.integers(1, 12))
    box = st.integers(0, size - 1)
    return plain(size, draw(st.lists(st.tuples(box, box), max_size=30)))


def random_dag(seed: int, size: int = 40) -> Drawing:
    """Boxes of random sizes, random downward edges, two nested frames and one beside them."""
    random = np.random.default_rng(seed)
    below = random.integers(1, size, size=size * 2)
    frame_of = np.full(size, -1)
    frame_of[4:16], frame_of[8:12], frame_of[20:30] = 0, 1, 2
    return Drawing(
        widths=random.uniform(20, 160, size),
        heights=random.uniform(14, 60, size),
        edges=np.column_stack((random.integers(0, below), below)),
        frame_of=frame_of,
        frames=(LayoutFrame(None, 90, 14), LayoutFrame(0, 300, 20), LayoutFrame(None, 40, 30)),
    )


def check(drawn: Drawing, placed: Placement) -> None:
    """Boxes keep apart and lie in their frames, and every line runs from border to border."""
    boxes, frames = rectangles(drawn, placed), frame_rectangles(placed.frames)
    assert not overlapping_pairs(boxes) and not loose_ends(drawn, placed)
    inside = drawn.frame_of >= 0
    around = frames[drawn.frame_of[inside]]
    assert (boxes[inside, :2] > around[:, :2]).all() and (boxes[inside, 2:] < around[:, 2:]).all()


def with_cycles(drawn: Drawing) -> Drawing:
    """Every fifth edge the other way round, and one box that waits for all."""
    edges = drawn.edges.copy()
    edges[::5] = edges[::5, ::-1]
    return replace(drawn, edges=edges)


@pytest.mark.parametrize("framed", [False, True], ids=["plain", "framed"])
def test_cycles_are_drawn_upwards(framed: bool) -> None:
    drawn = with_cycles(random_dag(3))
    if not framed:
        drawn = replace(drawn, frames=(), frame_of=np.full(drawn.size, -1))
    check(drawn, layered.place(drawn))


def ways(drawn: Drawing) -> list[int]:
    """1 for lines that run downwards, -1 for those that run upwards."""
    placed = layered.place(drawn)
    lines = np.split(placed.points, placed.starts[1:-1])
    return [int(np.sign(line[-1, 1] - line[0, 1])) for line in lines if len(line)]


def test_one_line_of_a_circle_runs_upwards() -> None:
    circle = plain(6, [(0, 1), (1, 2), (2, 1), (2, 3), (3, 3), (3, 4), (2, 5)])
    assert ways(circle) == [1, 1, -1, 1, 1, 1]


@settings(max_examples=100, deadline=None)
@given(tangles())
def test_any_edges_can_be_placed(drawn: Drawing) -> None:
    check(drawn, layered.place(drawn))
    if all(above < below for above, below in drawn.edges.tolist()):
        assert set(ways(drawn)) <= {1}
