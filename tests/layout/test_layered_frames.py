"""Frames: what belongs inside is inside, everything else outside, and edges pass borders without running through text."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradviz.layout import Drawing, Floats, LayoutFrame, Placement
from gradviz.layout.layered import place
from tests.layout.geometry import boxes_cut, frame_rectangles, loose_ends, overlapping_pairs, rectangles, segment_hits
from tests.layout.networks import Network, gpt, lstm, plain, resnet


@st.composite
def framed_drawings(draw: st.DrawFn) -> Drawing:
    """Random drawings with nested frames around random boxes, so that many frames feed each other."""
    n, f = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    ends = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=2 * n))
    parents = [draw(st.one_of(st.none(), st.integers(0, i - 1))) if i else None for i in range(f)]
    sizes = st.sampled_from([4.0, 20.0, 60.0, 300.0])
    return Drawing(
        widths=np.array(draw(st.lists(sizes, min_size=n, max_size=n))),
        heights=np.array(draw(st.lists(st.one_of(sizes, st.just(900.0)), min_size=n, max_size=n))),
        edges=np.sort(np.array(pairs, np.int64).reshape(-1, 2)),
        frame_of=np.array(draw(st.lists(st.integers(-1, f - 1), min_size=n, max_size=n))),
        frames=tuple(LayoutFrame(parent, draw(st.sampled_from([0.0, 30.0, 150.0])), 14.0) for parent in parents),
        columns=draw(st.booleans()),
        room=draw(st.sampled_from([np.inf, 500.0])),
    )


def assert_framed(drawing: Drawing, placement: Placement) -> None:
    """Everything a drawing with frames promises."""
    boxes, frames = rectangles(drawing, placement), frame_rectangles(placement.frames)
    assert not overlapping_pairs(boxes)
    assert not loose_ends(drawing, placement)
    assert not boxes_cut(drawing, placement)
    inside = [_around(drawing, int(frame)) for frame in drawing.frame_of]
    for f, frame in enumerate(drawing.frames):
        parent = () if frame.parent is None else _around(drawing, frame.parent)
        assert all(_contains(frames[p], frames[f]) for p in parent)
        for box in range(drawing.size):
            assert _contains(frames[f], boxes[box]) if f in inside[box] else _apart(frames[f], boxes[box])
        for g in range(f):
            assert g in _around(drawing, f) or f in _around(drawing, g) or _apart(frames[f], frames[g])
    _assert_edges_keep_out(drawing, placement, frames, inside)
    assert (frames[:, 2] <= placement.width + 1e-6).all() and (frames[:, 3] <= placement.height + 1e-6).all()


def _assert_edges_keep_out(
    drawing: Drawing, placement: Placement, frames: Floats, inside: list[tuple[int, ...]]
) -> None:
    """No edge runs through a frame that holds neither of its ends, and between those on its upper border a title fits."""
    crossings: list[set[float]] = [set() for _ in drawing.frames]
    for edge, (above, below) in enumerate(drawing.edges.tolist()):
        points = placement.points[placement.starts[edge] : placement.starts[edge + 1]]
        for a, b in itertools.pairwise(points):
            assert set(np.flatnonzero(segment_hits(a, b, frames)).tolist()) <= {*inside[above], *inside[below]}
            for f, (left, top, right, _) in enumerate(frames.tolist()):
                if min(a[1], b[1]) < top <= max(a[1], b[1]):
                    x = float(a[0] + (b[0] - a[0]) * (top - a[1]) / (b[1] - a[1]))
                    crossings[f].add(min(max(x, left), right))
    for frame, (left, _, right, _), passing in zip(drawing.frames, frames.tolist(), crossings):
        free = np.diff([left, *sorted(passing), right]).max()
        assert free >= frame.title


def _around(drawing: Drawing, frame: int) -> tuple[int, ...]:
    """A frame and all frames around it."""
    found = []
    at: int | None = frame if frame >= 0 else None
    while at is not None:
        found.append(at)
        at = drawing.frames[at].parent
    return tuple(found)


def _contains(outer: Floats, inner: Floats) -> bool:
    return bool((outer[:2] < inner[:2]).all() and (outer[2:] > inner[2:]).all())


def _apart(one: Floats, other: Floats) -> bool:
    return bool((one[2:] <= other[:2] + 1e-6).any() or (other[2:] <= one[:2] + 1e-6).any())


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(framed_drawings())
def test_random_frames_hold_what_they_should(drawing: Drawing) -> None:
    assert_framed(drawing, place(drawing))


@pytest.mark.parametrize(("make", "size"), [(gpt, 2), (lstm, 3), (resnet, 4)])
def test_networks_with_frames(make: Callable[[int], Network], size: int) -> None:
    drawing = make(size).drawing(frames=True)
    assert_framed(drawing, place(drawing))


def test_two_frames_that_feed_each_other() -> None:
    drawing = plain(4, [(0, 1), (1, 2), (2, 3)])
    crossed = Drawing(
        drawing.widths, drawing.heights, drawing.edges, np.array([0, 1, 0, 1]), (LayoutFrame(None, 40.0, 14.0),) * 2
    )
    placement = place(crossed)
    assert_framed(crossed, placement)
    assert placement.frames[0].y < placement.frames[1].y


@pytest.mark.parametrize("title", [0.0, 500.0])
def test_a_frame_is_as_wide_as_its_title_even_when_empty(title: float) -> None:
    drawing = plain(2, [(0, 1)])
    frames = (LayoutFrame(None, title, 14.0), LayoutFrame(None, title, 14.0))
    framed = Drawing(drawing.widths, drawing.heights, drawing.edges, np.array([0, -1]), frames)
    placement = place(framed)
    assert all(rect.width >= title and rect.height >= 14.0 for rect in placement.frames)
    assert_framed(framed, placement)


def test_frames_inside_each_other_in_a_circle_are_refused() -> None:
    drawing = plain(1, [])
    frames = (LayoutFrame(1, 10.0, 10.0), LayoutFrame(0, 10.0, 10.0))
    with pytest.raises(ValueError, match="circle"):
        place(Drawing(drawing.widths, drawing.heights, drawing.edges, np.array([0]), frames))


@pytest.mark.parametrize(("first", "after"), [(4, 30), (15, 16), (26, 27)])
def test_a_frame_that_is_taller_than_its_room_stands_in_columns(first: int, after: int) -> None:
    """A chain through a frame in a frame: what is long stands in columns, in whichever frame that is."""
    count = 40
    frame_of = np.full(count, 0)
    frame_of[first:after] = 1
    frame_of[[0, -1]] = -1
    drawing = Drawing(
        widths=np.full(count, 80.0),
        heights=np.full(count, 24.0),
        edges=np.array([(i, i + 1) for i in range(count - 1)]),
        frame_of=frame_of,
        frames=(LayoutFrame(None, 60.0), LayoutFrame(0, 60.0)),
        columns=False,
    )
    tall, low = place(drawing), place(replace(drawing, room=900.0))
    assert tall.height > 1_900 and low.height <= 900
    assert_framed(replace(drawing, room=900.0), low)


def test_a_box_that_is_taller_than_the_room_stays_whole() -> None:
    heights = np.array([900.0, *[20.0] * 30])
    edges = np.array([[i, i + 1] for i in range(1, 30)], np.int64)
    sizes, frame_of = np.full(31, 40.0), np.full(31, -1, np.int64)
    placed = place(Drawing(sizes, heights, edges, frame_of, columns=False, room=500.0))
    assert placed.height >= 900.0
