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


def begins(placed: Placement) -> list[float]:
    """Where each line begins, across."""
    return [float(x) for x in placed.points[placed.starts[:-1], 0]]


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


def test_lines_that_leave_short_boxes_beside_long_ones_have_ports_too() -> None:
    lines = [[(0.0, 20.0), (0.0, 100.0), (x, 140.0)] for x in (-60.0, 0.0, 60.0)]
    lines[1] = [(0.0, 20.0), (0.0, 140.0)]
    given = drawing([40.0] * 4, np.array([(0, 1), (0, 2), (0, 3)]))
    longer = placement(np.array([0.0, -60.0, 0.0, 60.0]), np.array([10.0, 150.0, 150.0, 150.0]), lines)
    assert begins(spread(given, longer)) == [0.0, 0.0, 0.0]
    assert begins(spread(given, longer, flat=True)) == [-14.0, 0.0, 14.0]


def test_lines_that_join_the_same_boxes_do_not_hide_each_other() -> None:
    given = drawing([80.0, 80.0], np.array([(0, 1)] * 3))
    placed = placement(np.zeros(2), np.array([10.0, 70.0]), [[(0, 20), (0, 60)]] * 3)
    moved = spread(given, placed)
    found = ends(moved)
    assert len(set(found)) == 3 and max(abs(x) for x in found) <= TWIN_ROOM
    assert begins(moved) == found  # each stays straight


@pytest.mark.parametrize(("width", "step"), [(120.0, 14.0), (32.0, 3.5)])
def test_two_lines_of_one_box_come_as_far_apart_as_those_of_others(width: float, step: float) -> None:
    edges = np.array([(0, 2), (0, 2), (1, 2)])
    lines = [[(-80.0, 20.0), (0.0, 60.0)]] * 2 + [[(0.0, 20.0), (0.0, 60.0)]]
    given = drawing([width] * 3, edges)
    placed = placement(np.array([-80.0, 0.0, 0.0]), np.array([10.0, 10.0, 70.0]), lines)
    assert ends(spread(given, placed)) == [-2 * step, -step, 0.0]


def test_lines_that_turn_together_leave_the_box_together() -> None:
    """Two lines of one trunk and one on the other side: two ports, not three."""
    edges = np.array([(0, 1), (0, 2), (0, 3)])
    lines = [[(0.0, 20.0), (-80.0, 50.0), (-80.0, 90.0), (-40.0, 120.0)],
             [(0.0, 20.0), (-80.0, 50.0), (-80.0, 190.0), (-40.0, 220.0)],
             [(0.0, 20.0), (80.0, 50.0)]]  # fmt: skip
    given = drawing([120.0] * 4, edges)
    placed = spread(given, placement(np.array([0.0, -40.0, -40.0, 80.0]), np.array([10.0, 130.0, 230.0, 60.0]), lines))
    first, second, third = begins(placed)
    assert first == second < third


def two_into_one(run: float, *others: float) -> tuple[Drawing, Placement]:
    """Boxes that lead to one at x = 0 whose row begins `run` above it, the first of them right above it."""
    froms = [0.0, *others]
    count = len(froms)
    given = drawing([120.0] * (count + 1), np.array([(i, count) for i in range(count)]))
    lines = [[(x, 20.0), *([(0.0, 60.0)] if x else []), (0.0, 60.0 + run)] for x in froms]
    return given, placement(np.array([*froms, 0.0]), np.array([*[10.0] * count, 70.0 + run]), lines)


@pytest.mark.parametrize("run", [20.0, 200.0])
@pytest.mark.parametrize("flat", [False, True])
def test_lines_of_different_boxes_come_side_by_side_however_tall_the_row_is(run: float, flat: bool) -> None:
    given, placed = two_into_one(run, -100.0, 100.0, 200.0)
    moved = spread(given, placed, flat=flat)
    found = ends(moved)
    assert found == [0.0, -14.0, 14.0, 28.0]  # the one from right above stays straight
    turns = moved.points[moved.starts[2:] - 2, 0].tolist()
    assert turns == found[1:]  # apart all the way through the row


def test_a_line_that_passes_other_boxes_stays_where_it_is() -> None:
    """Of two that come straight, one from far above: the run of the other alone lies in the row of the box."""
    given, placed = two_into_one(60.0, 90.0)
    lines = [[(-50.0, -400.0), (0.0, -350.0), (0.0, 120.0)], [(90.0, 20.0), (0.0, 60.0), (0.0, 120.0)]]
    moved = spread(given, replace(placement(placed.x, placed.y, lines)))
    assert ends(moved) == [0.0, 14.0]
    assert moved.points[1, 0] == 0.0


def test_a_straight_line_gives_way_where_a_short_side_has_no_room_beside_it() -> None:
    """Four operands of a box that is 26 px high, one straight from the left and the others from below."""
    given, placed = star([0, 100, 200, 300], width=26.0)
    found = ends(spread(given, placed, flat=True))
    assert np.diff(found).min() >= 4.5 and max(map(abs, found)) <= TWIN_ROOM


def test_outputs_of_a_narrow_box_leave_it_as_one() -> None:
    """One tensor for all of them, so nothing seems to be missing."""
    edges = np.array([(0, i) for i in range(1, 5)])
    froms = [0.0, 100.0, 200.0, 300.0]
    lines = [[(0.0, 20.0), (x, 60.0)] for x in froms]
    given = drawing([26.0] * 5, edges)
    placed = spread(given, placement(np.array([0.0, *froms]), np.array([10.0, *[70.0] * 4]), lines), flat=True)
    assert begins(placed) == [0.0] * 4
