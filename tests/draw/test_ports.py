from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gradviz.draw.wires import CORNER, TWIN_ROOM, spread
from gradviz.layout import Drawing, Floats, Ints, Placement


def star(froms: list[float], width: float = 120.0) -> tuple[Drawing, Placement]:
    """One box at x = 0 below others at the given places, each joined to it by a line from middle to middle."""
    count = len(froms)
    edges = np.array([(i, count) for i in range(count)])
    lines = [[(x, 20.0), (0.0, 60.0)] for x in froms]
    x = np.array([*froms, 0.0])
    y = np.array([*[10.0] * count, 70.0])
    return drawing([width] * (count + 1), edges), placement(x, y, lines)


def drawing(widths: list[float], edges: Ints) -> Drawing:
    size = len(widths)
    return Drawing(np.array(widths), np.full(size, 20.0), edges, np.full(size, -1))


def placement(x: Floats, y: Floats, lines: Sequence[Sequence[tuple[float, float]]]) -> Placement:
    starts = np.cumsum([0, *(len(line) for line in lines)])
    points = np.array([point for line in lines for point in line], dtype=float).reshape(-1, 2)
    return Placement(x, y, points, starts, (), 500.0, 100.0)


def ends(placed: Placement) -> list[float]:
    """Where each line ends, across."""
    return [float(x) for x in placed.points[placed.starts[1:] - 1, 0]]


@pytest.mark.parametrize(
    "froms",
    [
        [-200, 0, 200],
        [-200, 200],
        [-300, -200, -100],
        [100, 300, 200, 0, -50],
        [float(i * 40 - 400) for i in range(20)],
    ],
)
def test_lines_end_side_by_side_in_the_order_they_come_from(froms: list[float]) -> None:
    given, placed = star(froms)
    moved = spread(given, placed)
    found = ends(moved)
    assert sorted(range(len(froms)), key=lambda i: froms[i]) == sorted(range(len(found)), key=lambda i: found[i])
    assert np.diff(sorted(found)).min() >= 3
    assert max(abs(x) for x in found) <= 60 - CORNER
    assert all(x == 0 for x, start in zip(found, froms) if start == 0)
    assert np.array_equal(moved.points[:, 1], placed.points[:, 1])


def test_short_boxes_beside_long_ones_have_ports_too() -> None:
    given, placed = star([-60, 0, 60], width=40.0)
    longer = replace(placed, points=np.insert(placed.points, [1, 3, 5], [[0.0, -20.0]] * 3, axis=0))
    longer = replace(longer, starts=np.array([0, 3, 6, 9]))
    assert ends(spread(given, longer)) == [0.0, 0.0, 0.0]
    assert ends(spread(given, longer, flat=True)) == [-14.0, 0.0, 14.0]


def test_lines_that_join_the_same_boxes_do_not_hide_each_other() -> None:
    given = drawing([80.0, 80.0], np.array([(0, 1)] * 3))
    placed = placement(np.zeros(2), np.array([10.0, 70.0]), [[(0, 20), (0, 60)]] * 3)
    moved = spread(given, placed)
    found = ends(moved)
    assert len(set(found)) == 3 and max(abs(x) for x in found) <= TWIN_ROOM
    begins = moved.points[moved.starts[:-1], 0].tolist()
    assert begins == found  # each stays straight


def test_lines_that_turn_together_leave_the_box_together() -> None:
    """Two lines of one trunk and one on the other side: two ports, not three."""
    edges = np.array([(0, 1), (0, 2), (0, 3)])
    lines = [[(0.0, 20.0), (-80.0, 50.0), (-80.0, 90.0), (-40.0, 120.0)],
             [(0.0, 20.0), (-80.0, 50.0), (-80.0, 190.0), (-40.0, 220.0)],
             [(0.0, 20.0), (80.0, 50.0)]]  # fmt: skip
    given = drawing([120.0] * 4, edges)
    placed = spread(given, placement(np.array([0.0, -40.0, -40.0, 80.0]), np.array([10.0, 130.0, 230.0, 60.0]), lines))
    begins = [float(x) for x in placed.points[placed.starts[:-1], 0]]
    assert begins[0] == begins[1] < begins[2]
