"""Drawings shaped like networks: narrow however deep, the main stream straight, side outputs and leaves near their use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gradviz.layout.layered import place
from tests.layout.geometry import boxes_cut, count_crossings, overlapping_pairs, rectangles
from tests.layout.networks import Network, gpt, lstm, plain, resnet


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
    placement = place(replace(net.drawing(), columns=False))
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


@pytest.mark.parametrize("leaves", [3, 5, 7])
def test_a_box_that_only_uses_leaves_stands_below_their_middle(leaves: int) -> None:
    placement = place(plain(leaves + 2, [*((i, leaves) for i in range(leaves)), (leaves, leaves + 1)]))
    assert placement.x[leaves] == pytest.approx(placement.x[:leaves].mean())
