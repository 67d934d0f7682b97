"""Drawings whose edges form a cycle are placed, too, and say what runs upwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradviz.layout import Drawing, layered, leading_back, turned
from tests.layout.drawings import (
    check_boxes,
    check_frames,
    check_routes,
    drawing,
    random_dag,
    routes,
)


@st.composite
def tangles(draw: st.DrawFn) -> Drawing:
    """Any edges between up to 12 boxes."""
    size = draw(st.integers(1, 12))
    box = st.integers(0, size - 1)
    return drawing(size, draw(st.lists(st.tuples(box, box), max_size=30)))


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
    check_boxes(drawn, placed)
    check_routes(drawn, placed)
    check_frames(drawn, placed)


def test_one_line_of_a_circle_runs_upwards() -> None:
    circle = drawing(4, [(0, 1), (1, 2), (2, 1), (2, 3), (3, 3)])
    placed = layered.place(circle)
    ways = [np.sign(route[-1, 1] - route[0, 1]) for route in routes(placed) if len(route)]
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
    check_boxes(drawn, placed)
    check_routes(drawn, placed)


def _reached(drawn: Drawing, start: int) -> set[int]:
    found, pairs = {start}, drawn.edges.tolist()
    for _ in range(drawn.size):
        found.update(below for above, below in pairs if above in found)
    return found
