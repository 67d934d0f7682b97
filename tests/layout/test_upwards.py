"""Drawings whose edges form a cycle are placed, too, and say what runs upwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradviz.layout import Drawing, LayoutFrame, Placement, layered, leading_back, turned
from tests.layout.geometry import (
    frame_rectangles,
    loose_ends,
    overlapping_pairs,
    rectangles,
)
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
    rows = np.arange(0, len(drawn.edges), 5)
    return turned(drawn, rows)


@pytest.mark.parametrize("framed", [False, True], ids=["plain", "framed"])
def test_cycles_are_drawn_upwards_and_said(framed: bool) -> None:
    drawn = with_cycles(random_dag(3))
    if not framed:
        drawn = replace(drawn, frames=(), frame_of=np.full(drawn.size, -1))
    placed = layered.place(drawn)
    count = len(leading_back(drawn))
    assert count > 1
    assert placed.notes == (
        f"{count} lines run against the direction of the others, because the boxes there wait for each other",
    )
    check(drawn, placed)


def test_one_line_of_a_circle_runs_upwards() -> None:
    circle = plain(4, [(0, 1), (1, 2), (2, 1), (2, 3), (3, 3)])
    placed = layered.place(circle)
    ways = [np.sign(route[-1, 1] - route[0, 1]) for route in np.split(placed.points, placed.starts[1:-1]) if len(route)]
    assert ways == [1, 1, -1, 1]
    assert placed.notes == (
        "1 line runs against the direction of the others, because the boxes there wait for each other",
    )


def test_without_a_cycle_nothing_is_turned() -> None:
    assert layered.place(random_dag(3)).notes == ()
    assert leading_back(random_dag(3)).tolist() == []


@settings(max_examples=100, deadline=None)
@given(tangles())
def test_any_edges_can_be_placed(drawn: Drawing) -> None:
    back = leading_back(drawn)
    assert len(leading_back(turned(drawn, back))) == 0
    for row in back.tolist():  # each of them is on a cycle: nothing is turned without need
        above, below = drawn.edges[row].tolist()
        assert above in _reached(drawn, below)
    placed = layered.place(drawn)
    check(drawn, placed)


def _reached(drawn: Drawing, start: int) -> set[int]:
    found, pairs = {start}, drawn.edges.tolist()
    for _ in range(drawn.size):
        found.update(below for above, below in pairs if above in found)
    return found
