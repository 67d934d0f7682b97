"""Columns side by side: every box and every line is still there, in its column, and cut lines can be followed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gradviz.layout import Drawing, Placement, layered
from gradviz.layout.page_columns import BETWEEN, STUBS, side_by_side
from tests.layout.networks import (
    gpt,
    lstm,
    plain,
    unet,
)


def placed(drawing: Drawing) -> Placement:
    return layered.place(drawing)


CASES = {
    "gpt": gpt(12).drawing(),
    "gpt with frames": gpt(12).drawing(frames=True),
    "lstm": lstm(60).drawing(),
    "lstm with frames": lstm(60).drawing(frames=True),
    "unet": unet(40).drawing(),
}


@pytest.fixture(params=CASES)
def drawing(request: pytest.FixtureRequest) -> Drawing:
    return CASES[request.param]


def column_of(x: np.ndarray, before: Placement) -> np.ndarray:
    return np.floor_divide(x, before.width + BETWEEN).astype(int)


def test_a_long_drawing_becomes_about_as_wide_as_high(drawing: Drawing) -> None:
    before = placed(drawing)
    folded = side_by_side(drawing, before)
    after = folded.placement
    assert folded.columns > 2
    assert 0.3 < after.width / after.height < 3
    assert after.height < before.height / folded.columns * 1.5 + 2 * STUBS


def test_boxes_keep_their_order_and_lie_inside(drawing: Drawing) -> None:
    """Read column by column from the top, the boxes are those of the long drawing."""
    before = placed(drawing)
    after = side_by_side(drawing, before).placement
    column = column_of(after.x, before)
    assert np.allclose(after.x - column * (before.width + BETWEEN), before.x)
    assert (after.y - drawing.heights / 2 >= STUBS).all()
    assert (after.y + drawing.heights / 2 <= after.height - STUBS).all()
    order = np.lexsort((after.y, column))
    assert (np.diff(before.y[order]) >= 0).all()


def lines(placement: Placement) -> list[np.ndarray]:
    return np.split(placement.points, placement.starts[1:-1])


def test_lines_join_the_same_boxes_and_cut_ones_end_in_stubs(drawing: Drawing) -> None:
    before = placed(drawing)
    folded = side_by_side(drawing, before)
    old, new = lines(before), lines(folded.placement)
    shift = np.column_stack((folded.placement.x - before.x, folded.placement.y - before.y))
    more = dict(zip(folded.edge.tolist(), new[len(old) :]))
    assert len(more) == len(new) - len(old) == len(folded.edge)
    for i, (above, below) in enumerate(drawing.edges.tolist()):
        assert np.allclose(new[i][0], old[i][0] + shift[above])
        assert np.allclose(more.get(i, new[i])[-1], old[i][-1] + shift[below])
        if i in more:
            (x, begin), (_, end) = new[i][-2:]
            assert x == new[i][-1, 0] and (end < STUBS or end > folded.placement.height - STUBS or end > begin)
        else:
            assert np.allclose(shift[above], shift[below])
            assert np.allclose(new[i], old[i] + shift[above])


def test_every_line_stays_in_its_column(drawing: Drawing) -> None:
    before = placed(drawing)
    folded = side_by_side(drawing, before)
    for line in lines(folded.placement):
        assert len(set(column_of(line[:, 0], before).tolist())) == 1
    assert folded.placement.points.min() >= 0
    assert (folded.placement.points <= (folded.placement.width, folded.placement.height)).all()


def test_frames_are_cut_and_still_surround_their_boxes() -> None:
    drawing = CASES["gpt with frames"]
    folded = side_by_side(drawing, placed(drawing))
    pieces: dict[int, list] = {i: [rect] for i, rect in enumerate(folded.placement.frames[: len(drawing.frames)])}
    for i, rect in zip(folded.frame.tolist(), folded.placement.frames[len(drawing.frames) :]):
        pieces[i].append(rect)
    assert any(len(of) > 1 for of in pieces.values())
    for box, frame in enumerate(drawing.frame_of.tolist()):
        if frame >= 0:
            x, y = folded.placement.x[box], folded.placement.y[box]
            assert sum(r.x < x < r.x + r.width and r.y < y < r.y + r.height for r in pieces[frame]) == 1


def test_stubs_close_to_each_other_have_different_lengths() -> None:
    chains, length = 8, 200
    boxes = np.arange(chains * length).reshape(chains, length)
    first = np.column_stack((np.full(chains, boxes.size), boxes[:, 0]))  # one box above all of them
    edges = np.concatenate((first, np.column_stack((boxes[:, :-1].ravel(), boxes[:, 1:].ravel()))))
    drawing = plain(boxes.size + 1, edges, width=20.0)
    folded = side_by_side(drawing, placed(drawing))
    ends = np.array([lines(folded.placement)[i][-1] for i in folded.edge.tolist()])
    ends = ends[np.argsort(ends[:, 0])]
    close = [(a, b) for a, b in pairwise(ends.tolist()) if b[0] - a[0] < 40]
    assert len(close) == (chains - 1) * (folded.columns - 1) and all(a[1] != b[1] for a, b in close)


def test_what_cannot_be_cut_stays_in_one_piece() -> None:
    one = Drawing(np.array([60.0]), np.array([5000.0]), np.zeros((0, 2), np.int64), np.array([-1]))
    before = placed(one)
    folded = side_by_side(one, before)
    assert folded.columns == 1 and folded.placement is before


def test_cuts_run_where_little_is_cut() -> None:
    """Two lines leave a block, one of them around the next one's attention; inside of it there are up to four."""
    drawing = gpt(100).drawing()
    folded = side_by_side(drawing, placed(drawing))
    assert folded.columns > 5 and len(folded.edge) == 2 * (folded.columns - 1)


def test_two_runs_are_equal(drawing: Drawing) -> None:
    first, second = (side_by_side(drawing, replace(placed(drawing))).placement for _ in range(2))
    assert np.array_equal(first.points, second.points) and first.frames == second.frames
