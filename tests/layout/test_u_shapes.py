"""A U-Net is drawn as a U, in which everything still holds that any drawing promises; nothing else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from gradviz.layout import Drawing, Floats, Ints, LayoutFrame, Placement
from gradviz.layout.layered import place
from gradviz.layout.layered.u_shapes import in_halves
from tests.layout.networks import Network, gpt, lstm, plain, resnet
from tests.layout.test_layered_frames import assert_framed


class UNet(Network):
    """A U-Net with frames around its blocks, and around all of it."""

    def __init__(self, levels: int, *, blocks: bool = False, bridges: bool = False, time: bool = False) -> None:
        super().__init__()
        self.skips: list[tuple[int, int]] = []
        x = self.box("x")
        self.begin("model UNet")
        t = self.box("time_mlp", self.box("t")) if time else None
        kept: list[int] = []
        for level in range(levels):
            x = self._block(f"down{level}", x, t, blocks)
            kept.append(self.box("skip block", x) if bridges else x)
            x = self.box("pool", x)
        x = self._block("mid", x, t, blocks)
        for level in reversed(range(levels)):
            x = self.box("cat", self.box("up", x), kept[level])
            self.skips.append((kept[level], x))
            x = self._block(f"up{level}", x, t, blocks)
        x = self.box("out", x)
        self.end()
        self.box("loss", self.box("mse", x, self.box("target")))

    def _block(self, name: str, x: int, t: int | None, framed: bool) -> int:
        inputs = [x] if t is None else [x, t]
        if not framed:
            return self.box(name, *inputs)
        self.begin(name)
        x = self.box("relu", self.norm(self.box("conv", *inputs), name))
        self.end()
        return x


def as_u(drawing: Drawing) -> Drawing:
    """The drawing, which may be drawn as a U."""
    return replace(drawing, u_shapes=True)


def lines(placed: Placement, drawing: Drawing, edges: list[tuple[int, int]]) -> list[Floats]:
    """The routes of these edges."""
    rows = [drawing.edges.tolist().index(list(edge)) for edge in edges]
    return [placed.points[placed.starts[row] : placed.starts[row + 1]] for row in rows]


@pytest.mark.parametrize("time", [False, True], ids=["", "time"])
@pytest.mark.parametrize("bridges", [False, True], ids=["", "bridges"])
@pytest.mark.parametrize("blocks", [False, True], ids=["", "blocks"])
@pytest.mark.parametrize("framed", [False, True], ids=["", "framed"])
@pytest.mark.parametrize("levels", [3, 6])
def test_a_u_net_is_a_u(levels: int, framed: bool, blocks: bool, bridges: bool, time: bool) -> None:
    net = UNet(levels, blocks=blocks, bridges=bridges, time=time)
    drawing = as_u(net.drawing(frames=framed))
    placed = place(drawing)
    assert placed.is_u
    for (box, other), line in zip(net.skips, lines(placed, drawing, net.skips)):
        assert placed.x[box] < placed.x[other] and len(line) == 2
        assert line[0, 1] == line[1, 1] == pytest.approx(placed.y[box]) == pytest.approx(placed.y[other])
    taken, kept = np.array(net.skips).T
    assert (np.diff(placed.y[kept]) < 0).all() and (np.diff(placed.y[taken]) < 0).all()
    assert_framed(drawing, placed)


def test_what_follows_on_a_u_stands_below_it() -> None:
    net = UNet(4)
    placed = place(as_u(net.drawing(frames=True)))
    (frame,) = placed.frames
    x, mse, loss = 0, net.texts.index("mse"), net.texts.index("loss")
    assert frame.y + frame.height < placed.y[mse] < placed.y[loss]
    assert frame.x < placed.x[x] < frame.x + frame.width and placed.y[x] < frame.y


def test_two_u_nets_in_a_row_are_below_each_other() -> None:
    net = UNet(3)
    boxes, other = len(net.texts), UNet(3)
    net.edges += [(a + boxes, b + boxes) for a, b in other.edges] + [(boxes - 1, boxes)]
    net.texts += other.texts
    net.frame_of += [-1 if frame < 0 else 1 for frame in other.frame_of]
    net.frames += other.frames
    drawing = as_u(net.drawing(frames=True))
    placed = place(drawing)
    above, below = placed.frames
    assert placed.is_u and above.y + above.height < below.y
    assert_framed(drawing, placed)


def _densenet(layers: int) -> Drawing:
    return plain(layers, [(i, j) for j in range(layers) for i in range(j)])


def _nested(skips: int, tail: int = 0) -> Drawing:
    size = 2 * skips + 1
    chain = [(i, i + 1) for i in range(size + tail - 1)]
    return plain(size + tail, chain + [(i, size - 1 - i) for i in range(skips)])


@pytest.mark.parametrize(
    "drawing",
    [
        gpt(3).drawing(),
        gpt(3).drawing(frames=True),
        lstm(6).drawing(),
        resnet(4).drawing(frames=True),
        _densenet(12),
        _nested(2),
        _nested(3, tail=20),
        plain(12, [(i, i + 1) for i in range(11)] + [(i, i + 2) for i in range(10)]),
    ],
    ids=["gpt", "gpt framed", "lstm", "resnet", "densenet", "two skips", "mostly something else", "short skips"],
)
def test_no_other_drawing_is_a_u(drawing: Drawing) -> None:
    one, other = place(drawing), place(as_u(drawing))
    assert not other.is_u and np.array_equal(one.points, other.points)


@st.composite
def u_nets(draw: st.DrawFn) -> Drawing:
    """Nested skips on a chain, other edges, and frames around parts of it."""
    skips, step = draw(st.integers(3, 5)), draw(st.integers(1, 3))
    size = 2 * step * skips + draw(st.integers(1, 4))
    last = size - 1
    edges = [(i, i + 1) for i in range(last)] + [(step * i, last - step * i) for i in range(skips)]
    more = draw(st.integers(0, 6))
    box = st.integers(0, size + more - 1)
    edges += [tuple(sorted(pair)) for pair in draw(st.lists(st.tuples(box, box), max_size=8))]
    size += more
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=6)))
    frame_of: Ints = np.searchsorted(cuts, np.arange(size), side="right") % 3 - 1
    sizes = st.sampled_from([4.0, 20.0, 60.0, 300.0])
    return Drawing(
        widths=np.array(draw(st.lists(sizes, min_size=size, max_size=size))),
        heights=np.array(draw(st.lists(sizes, min_size=size, max_size=size))),
        edges=np.array(edges, np.int64),
        frame_of=frame_of,
        frames=(LayoutFrame(None, draw(st.sampled_from([0.0, 150.0])), 14.0), LayoutFrame(None, 60.0, 14.0)),
        u_shapes=True,
    )


def _loose_beside_an_end() -> Drawing:
    """A box without edges in the frame of the outermost skip's start."""
    edges = [(i, i + 1) for i in range(6)] + [(0, 6), (1, 5), (2, 4)]
    frames = (LayoutFrame(None, 0.0, 14.0),)
    return replace(plain(8, edges), frame_of=np.array([0, *[-1] * 6, 0]), frames=frames, u_shapes=True)


def _long_half_in_a_frame() -> Drawing:
    """So long that it would stand in columns."""
    edges = [(i, i + 1) for i in range(33)] + [(3 * i, 33 - 3 * i) for i in range(5)]
    heights = np.where(np.arange(34) < 31, 4.0, 300.0)
    frames = (LayoutFrame(None, 0.0, 14.0),)
    frame_of = np.array([-1] * 22 + [0] * 12)
    return replace(plain(34, edges), heights=heights, frame_of=frame_of, frames=frames, u_shapes=True)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(u_nets())
@example(_loose_beside_an_end())
@example(_long_half_in_a_frame())
def test_random_u_nets_hold_what_any_drawing_promises(drawing: Drawing) -> None:
    assert_framed(drawing, place(drawing))


def test_two_skips_make_a_u_where_an_embedding_goes_to_every_block() -> None:
    shown = [place(as_u(UNet(2, time=time).drawing(frames=True))).is_u for time in (True, False)]
    assert shown == [True, False]


def _sum_of_losses() -> Drawing:
    """As of a style transfer: three terms in a frame, one beside it, and a sum with factors."""
    chain = [(1, 0), (0, 8), (8, 9), (9, 10), (10, 11), (11, 15), (15, 19), (19, 21), (21, 22), (22, 25), (25, 26)]
    terms = [(0, 12), (12, 13), (13, 14), (14, 15), (0, 16), (16, 17), (17, 18), (18, 19), (0, 7), (7, 20), (20, 22)]
    data = [(1, 23), (23, 24), (24, 25), (2, 7), (3, 18), (4, 14), (5, 10), (6, 2)]
    frame_of = np.full(27, -1)
    frame_of[[10, 14, 18]], frame_of[[8, 9]], frame_of[[12, 13]], frame_of[[16, 17]], frame_of[23] = 0, 1, 2, 3, 4
    frames = [LayoutFrame(parent, 0.0) for parent in (None, 0, 0, 0, None)]
    return replace(plain(27, [*chain, *terms, *data]), frame_of=frame_of, frames=tuple(frames), u_shapes=True)


def test_no_u_is_drawn_whose_skips_are_not_level() -> None:
    drawing = _sum_of_losses()
    placed = place(drawing)
    assert in_halves(drawing)[1] and not placed.is_u
    assert_framed(drawing, placed)
