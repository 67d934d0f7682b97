"""What every placement of the layered engine must be, on random drawings and on odd ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradviz.layout import Drawing, Placement
from gradviz.layout.layered import place
from tests.layout.geometry import boxes_cut, loose_ends, overlapping_pairs, rectangles
from tests.layout.networks import plain


@st.composite
def drawings(draw: st.DrawFn, most: int = 40) -> Drawing:
    """Random boxes and edges without cycles; parallel edges and self-loops occur."""
    n = draw(st.integers(1, most))
    ends = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=3 * n))
    number = np.array(draw(st.permutations(range(n))))
    sizes = st.sampled_from([4.0, 20.0, 60.0, 300.0])
    return Drawing(
        widths=np.array(draw(st.lists(sizes, min_size=n, max_size=n))),
        heights=np.array(draw(st.lists(sizes, min_size=n, max_size=n))),
        edges=number[np.sort(np.array(pairs, np.int64).reshape(-1, 2))],
        frame_of=np.full(n, -1, np.int64),
    )


def assert_legal(drawing: Drawing, placement: Placement) -> None:
    """Nothing overlaps or leaves the page, and every edge goes from box to box around all others."""
    boxes = rectangles(drawing, placement)
    assert not overlapping_pairs(boxes)
    assert not loose_ends(drawing, placement)
    assert not boxes_cut(drawing, placement)
    assert len(placement.starts) == len(drawing.edges) + 1
    everything = np.concatenate((boxes[:, :2], boxes[:, 2:], placement.points))
    assert everything.min(initial=0) >= -1e-6
    assert (everything <= np.array([placement.width, placement.height]) + 1e-6).all()


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(drawings())
def test_random_drawings_are_legal(drawing: Drawing) -> None:
    placement = place(drawing)
    assert_legal(drawing, placement)
    proper = drawing.edges[drawing.edges[:, 0] != drawing.edges[:, 1]]
    # a longer one may stand in columns
    if drawing.heights.sum() < 500:
        assert (placement.y[proper[:, 0]] < placement.y[proper[:, 1]]).all()


@settings(max_examples=30, deadline=None)
@given(drawings())
def test_the_same_drawing_is_placed_the_same_way(drawing: Drawing) -> None:
    one, other = place(drawing), place(drawing)
    for name in ("x", "y", "points", "starts"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@settings(max_examples=30, deadline=None)
@given(drawings())
def test_edges_past_the_budget_are_straight_lines_from_box_to_box(drawing: Drawing) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradviz.layout.layered.layers.LEAST_BUDGET", 0)
        patch.setattr("gradviz.layout.layered.layers.BUDGET_PER_NODE", 0)
        placed = place(drawing)
    assert not overlapping_pairs(rectangles(drawing, placed)) and not loose_ends(drawing, placed)


ODD = {
    "nothing": plain(0, []),
    "one box": plain(1, []),
    "a self-loop": plain(1, [(0, 0)]),
    "boxes without edges": plain(300, []),
    "parallel edges": plain(2, [(0, 1), (0, 1), (0, 1)]),
    "many little drawings": plain(300, [edge for i in range(0, 300, 3) for edge in ((i, i + 1), (i, i + 2))]),
    "many leaves of one box": plain(401, [(i, 400) for i in range(400)]),
    "many ends of one box": plain(401, [(400, i) for i in range(400)]),
    "leaves above and ends below": plain(101, [(i, 50) for i in range(50)] + [(50, i) for i in range(51, 101)]),
    "everything with everything": plain(24, [(i, j) for j in range(24) for i in range(j)]),
    "all of one row to all of the next": plain(80, [(i, 40 + j) for i in range(40) for j in range(40)]),
    "a binary tree": plain(255, [((i - 1) // 2, i) for i in range(1, 255)]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_drawings_are_legal(name: str) -> None:
    placement = place(ODD[name])
    assert_legal(ODD[name], placement)


def test_parallel_edges_share_a_route_and_loops_have_none() -> None:
    placement = place(plain(2, [(0, 1), (0, 0), (0, 1)]))
    routes = [placement.points[a:b] for a, b in zip(placement.starts[:-1], placement.starts[1:])]
    assert len(routes[1]) == 0
    assert np.array_equal(routes[0], routes[2]) and len(routes[0]) == 2


def test_a_very_deep_chain_with_a_skip_over_all_of_it() -> None:
    n = 100_000
    drawing = plain(n, [*((i, i + 1) for i in range(n - 1)), (0, n - 1)])
    placement = place(drawing)
    assert np.ptp(placement.x) < 1e-6
    assert (np.diff(placement.y) > drawing.heights[0]).all()
    assert placement.width < 4 * drawing.widths[0]


def test_a_long_chain_stands_in_columns_and_a_long_net_with_many_skips_does_not() -> None:
    """Each column below its top, and the edge between two of them turns beside both."""
    count = 40
    chain = np.array([(i, i + 1) for i in range(count - 1)])
    placed = place(plain(count, chain, 100.0, 30.0))
    columns = sorted(set(placed.x.tolist()))
    assert len(columns) == 3 and placed.height < 900
    assert all(np.all(np.diff(placed.y[placed.x == x]) > 0) for x in columns)
    for i in range(count - 1):
        line = placed.points[placed.starts[i] : placed.starts[i + 1]]
        assert line[0].tolist() == [placed.x[i], placed.y[i] + 15.0]
        assert line[-1].tolist() == [placed.x[i + 1], placed.y[i + 1] - 15.0]

    skips = np.concatenate((chain, [(i, count - 1 - i) for i in range(3)]))
    assert place(plain(count, skips, 100.0, 30.0)).height > 2_000


def test_a_column_is_as_wide_as_what_stands_in_it() -> None:
    """A skip beside a wide box of the first column runs close to the narrow ones of the others."""
    n = 60
    chain = [(i, i + 1) for i in range(n - 1)]
    widths = np.full(n, 40.0)
    widths[4] = 600.0
    drawing = Drawing(
        widths=widths,
        heights=np.full(n, 40.0),
        edges=np.array([*chain, (0, n - 1)], np.int64),
        frame_of=np.full(n, -1, np.int64),
        columns=True,
    )
    placed = place(drawing)
    assert_legal(drawing, placed)
    assert len(np.unique(placed.x)) == 2 and placed.width < 600 + 200


def test_edges_that_go_on_to_the_next_column_keep_to_lanes_of_their_own() -> None:
    """A skip from the first box to the last beside a long chain: two lines between columns, nowhere on top of each other."""
    count = 40
    edges = np.array([(i, i + 1) for i in range(count - 1)] + [(0, count - 1)])
    placed = place(plain(count, edges, 100.0, 30.0))
    assert placed.height < 1_300
    lines = np.split(placed.points, placed.starts[1:-1])
    skip = lines[-1]
    runs = [(a, b) for a, b in pairwise(skip) if a[0] == b[0] and a[1] > b[1]]
    assert runs  # up between two columns
    for line in lines[:-1]:
        for a, b in pairwise(line):
            beside = [x for (x, _), _ in runs if a[0] == b[0] == x]
            assert not beside, "a line runs on top of the skip"
    for x, y in zip(placed.x, placed.y):
        for (left, low), (_, high) in runs:
            assert not (abs(left - x) < 50 and high < y < low)


@pytest.mark.parametrize("last_first", [True, False])
def test_boxes_that_are_alike_stand_in_the_order_in_which_they_were_given(last_first: bool) -> None:
    """As experts whose results are added one after another, to the first or to the last."""
    experts = [1, 2, 3, 4]
    edges = [(0, expert) for expert in experts]
    total, turns = 5, reversed(experts) if last_first else experts
    edges += [(expert, total + i) for i, expert in enumerate(turns)]
    edges += [(total + i, total + i + 1) for i in range(3)]
    placed = place(plain(9, edges))
    assert (np.diff(placed.x[experts]) > 0).all()
