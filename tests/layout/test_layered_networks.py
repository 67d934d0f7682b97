"""Drawings shaped like networks: narrow however deep, the main stream straight, side outputs and leaves near their use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradviz.layout.layered import place
from tests.layout.geometry import (
    boxes_cut,
    count_crossings,
    overlapping_pairs,
    rectangles,
)
from tests.layout.networks import (
    Network,
    gpt,
    lstm,
    plain,
    resnet,
)


@pytest.mark.parametrize(("make", "few", "many"), [(gpt, 6, 120), (lstm, 10, 150), (resnet, 8, 100)])
def test_width_does_not_grow_with_depth(make: Callable[[int], Network], few: int, many: int) -> None:
    shallow, deep = place(make(few).drawing()), place(make(many).drawing())
    assert deep.height > 5 * shallow.height
    assert deep.width < 1.1 * shallow.width


@pytest.mark.parametrize(("make", "size"), [(gpt, 4), (lstm, 4), (resnet, 6)])
def test_networks_are_drawn_without_overlap(make: Callable[[int], Network], size: int) -> None:
    drawing = make(size).drawing()
    placement = place(drawing)
    assert not overlapping_pairs(rectangles(drawing, placement))
    assert not boxes_cut(drawing, placement)


@pytest.mark.parametrize(("make", "size"), [(gpt, 12), (resnet, 9)])
def test_the_main_stream_is_one_straight_line(make: Callable[[int], Network], size: int) -> None:
    net = make(size)
    placement = place(net.drawing())
    stream = [i for i, text in enumerate(net.texts) if text == "AddBackward0"]
    assert np.ptp(placement.x[stream]) < 0.1
    assert count_crossings(placement) == 0


def test_every_time_step_of_a_recurrent_network_looks_alike() -> None:
    net = lstm(40, layers=1)
    placement = place(net.drawing())
    splits = [i for i, text in enumerate(net.texts) if text == "SplitBackward0"][5:-5]
    assert np.ptp(placement.x[splits]) < 1
    assert np.ptp(np.diff(placement.y[splits])) < 1


def test_a_side_output_lies_right_under_what_made_it() -> None:
    drawing = plain(50, [*((i, i + 1) for i in range(48)), (3, 49)])
    placement = place(drawing)
    assert placement.y[49] == placement.y[4]


def test_a_leaf_lies_right_above_its_only_use() -> None:
    drawing = plain(50, [*((i, i + 1) for i in range(48)), (49, 40)])
    placement = place(drawing)
    assert placement.y[49] == placement.y[39]


def test_leaves_of_one_box_lie_on_both_sides_of_the_stream() -> None:
    placement = place(plain(6, [(5, 0), (0, 1), (1, 2), (3, 1), (4, 1)]))
    assert sorted(np.sign(placement.x[[3, 4]] - placement.x[0]).tolist()) == [-1, 1]
    assert placement.x[0] == placement.x[1] == placement.x[2]


def test_a_recurrent_network_keeps_few_crossings() -> None:
    steps, layers = 20, 2
    assert count_crossings(place(lstm(steps, layers).drawing())) <= 1.5 * steps * layers


def test_rows_move_apart_where_edges_go_far_sideways() -> None:
    near = place(plain(3, [(0, 2), (1, 2)], width=60.0))
    far = place(plain(3, [(0, 2), (1, 2)], width=2400.0))
    assert np.ptp(far.y) > 1.5 * np.ptp(near.y)


def test_edges_past_the_budget_into_one_box_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradviz.layout.layered.layers.LEAST_BUDGET", 0)
    monkeypatch.setattr("gradviz.layout.layered.layers.BUDGET_PER_NODE", 0)
    drawing = plain(30, [*((i, i + 1) for i in range(29)), *((i, 29) for i in range(0, 20, 2))])
    placement = place(drawing)
    right = (placement.x + drawing.widths / 2).max()
    assert len(np.unique(placement.points[placement.points[:, 0] > right, 0])) == 1


@pytest.mark.parametrize("leaves", [2, 3, 4, 5, 7])
def test_a_box_that_only_uses_leaves_stands_below_their_middle(leaves: int) -> None:
    placement = place(plain(leaves + 2, [*((i, leaves) for i in range(leaves)), (leaves, leaves + 1)]))
    assert placement.x[leaves] == pytest.approx(placement.x[:leaves].mean())


def test_of_three_equal_ways_the_middle_one_goes_straight_on() -> None:
    placement = place(plain(6, [(0, 1), (1, 2), (1, 3), (1, 4), (2, 5), (3, 5), (4, 5)]))
    assert placement.x[0] == placement.x[1] == placement.x[3] == placement.x[5]
    assert placement.x[2] + placement.x[4] == pytest.approx(2 * placement.x[3])


def test_two_equal_ways_stand_on_both_sides_in_the_order_given() -> None:
    placement = place(plain(6, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5)]))
    x = placement.x
    assert x[0] == pytest.approx(x[3]) == pytest.approx((x[1] + x[2]) / 2)
    assert x[1] < x[2] and x[3] == x[4] == x[5]


def test_leaves_that_one_box_joins_keep_their_order() -> None:
    placement = place(plain(4, [(0, 2), (1, 2), (2, 3)]))
    assert placement.x[0] < placement.x[2] < placement.x[1]
