"""Placing with dot: what goes in, what comes back, with both engines."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradviz.errors import LayoutError, LayoutTimeout
from gradviz.layout import LayoutFrame, Rect, graphviz
from gradviz.layout.engines import from_json, place_by_dot, to_dot
from tests.layout.drawings import (
    chain,
    check_boxes,
    check_frames,
    check_routes,
    drawing,
    random_dag,
    routes,
)
from tests.layout.engines import ENGINES


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    monkeypatch.setenv(graphviz.VARIABLE, request.param)


def test_y_grows_downwards_along_edges(engine):
    placed = place_by_dot(chain(5))
    assert (np.diff(placed.y) >= 24 + 26 - 0.5).all()
    assert np.ptp(placed.x) == 0
    assert (placed.engine, placed.curved, placed.notes) == ("dot", True, ())


def test_boxes_side_by_side_keep_the_gap(engine):
    placed = place_by_dot(drawing(3, [(0, 1), (0, 2)], width=100.0))
    assert abs(placed.x[1] - placed.x[2]) >= 114 - 0.5
    assert placed.y[1] == placed.y[2]


@pytest.mark.parametrize("seed", range(4))
def test_random_drawings(engine, seed):
    drawn = random_dag(seed)
    placed = place_by_dot(drawn)
    check_boxes(drawn, placed)
    check_routes(drawn, placed)
    check_frames(drawn, placed)


def test_parallel_edges_and_self_loops_have_one_entry_each(engine):
    drawn = drawing(3, [(0, 1), (2, 2), (0, 1), (1, 2), (0, 1)])
    placed = place_by_dot(drawn)
    check_routes(drawn, placed)
    found = routes(placed)
    assert [len(route) > 0 for route in found] == [True, False, True, True, True]
    assert len({route.tobytes() for route in (found[0], found[2], found[4])}) == 3  # side by side


def test_an_edge_that_points_back_still_runs_from_first_to_second(engine):
    drawn = drawing(3, [(0, 1), (1, 2), (2, 0)])
    check_routes(drawn, place_by_dot(drawn))


def test_nothing_to_place_starts_nothing(monkeypatch):
    monkeypatch.setenv(graphviz.VARIABLE, "none")
    placed = place_by_dot(drawing(0, [], frames=[LayoutFrame(None, 10, 10)]))
    assert (placed.width, placed.height, len(placed.x), placed.frames) == (0, 0, 0, (Rect(0, 0, 0, 0),))


def test_a_frame_without_boxes_has_no_size(engine):
    placed = place_by_dot(drawing(1, [], frames=[LayoutFrame(None, 30, 10), LayoutFrame(0, 30, 10)]))
    assert placed.frames == (Rect(0, 0, 0, 0),) * 2
    assert (placed.width, placed.height) == (60, 24)


def test_a_wide_title_widens_its_frame_and_a_missing_one_does_not(engine):
    drawn = drawing(2, [(0, 1)], frame_of=[0, 1], frames=[LayoutFrame(None, 400, 18), LayoutFrame(None, 0, 0)])
    placed = place_by_dot(drawn)
    check_frames(drawn, placed)
    assert 400 <= placed.frames[0].width < 440
    assert placed.frames[1].width < 100


def test_deeply_nested_frames(engine):
    depth = 60
    frames = [LayoutFrame(index - 1 if index else None, 20, 10) for index in range(depth)]
    drawn = drawing(1, [], frame_of=[depth - 1], frames=frames)
    placed = place_by_dot(drawn)
    check_frames(drawn, placed)


@pytest.mark.slow
def test_a_drawing_taller_than_five_digits_keeps_its_precision(engine):
    placed = place_by_dot(chain(2500), timeout=60)
    assert placed.height > 100_000
    assert np.diff(placed.y) == pytest.approx(np.full(2499, 50.0), abs=1.0)


def test_the_text_holds_no_words_of_the_users():
    text = to_dot(drawing(2, [(0, 1), (1, 1)], frame_of=[0, -1], frames=[LayoutFrame(None, 12.2, 8)]))
    assert 'WIDTH="13" HEIGHT="8"' in text
    assert "n0 -> n1 [id=0];" in text and "n1 -> n1" not in text


def test_the_time_limit_is_passed_on(engine):
    size = 250
    drawn = drawing(size, [(i, j) for j in range(size) for i in range(j)])
    with pytest.raises(LayoutTimeout):
        place_by_dot(drawn, timeout=0.3)


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"objects": [{"name": "n0"}]}', b'{"objects": [{"name": "n7", "_draw_": [{"op": "p"}]}]}'],
)
def test_an_answer_that_makes_no_sense_is_a_layout_error(answer):
    with pytest.raises(LayoutError, match="cannot be read"):
        from_json(chain(2), answer)


def test_an_edge_that_dot_lost_is_a_straight_line():
    def box(name, y):
        return {"name": name, "_draw_": [{"op": "p", "points": [[0, y], [60, y], [60, y + 24], [0, y + 24]]}]}

    answer = json.dumps({"objects": [box("n0", 100), box("n1", 0)], "edges": [{"id": "0"}]}).encode()
    (route,) = routes(from_json(chain(2), answer))
    assert route[[0, -1]].tolist() == [[30, 24], [30, 100]]
    assert len(route) == 4
