from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from gradviz.draw.frames import Frame
from gradviz.draw.options import Direction, Options
from gradviz.draw.picture import Page, Picture, compose
from gradviz.draw.scene import Box, Legend, Link, Scene
from gradviz.draw.typesetting import BOLD, MAX_LETTERS, SIZES, FrameBlock, Words, text_width, wrapped
from gradviz.draw.wire_labels import label_words, samples
from gradviz.draw.wires import Curves, is_loop
from gradviz.graph import Edge, Graph, Group, Node, TensorInfo
from gradviz.layout import Rect
from tests.builders import GRAPHS, chain, multi_output
from tests.draw.column import drawn
from tests.drawn import folding, picture, scene

DIRECTIONS: tuple[Direction, ...] = ("down", "right")


def extent(words: Words, size: float = 12.0) -> Rect:
    """The room of a line of text, by the font's own measures."""
    left = words.x - words.width / 2 if words.centred else words.x
    return Rect(left, words.y - 0.76 * size, words.width, 0.98 * size)


def ends(made: Picture) -> list[tuple[int, int]]:
    """The blocks that each wire joins."""
    return [(link.source, link.target) for link in made.wires]


def contains(outer: Rect, inner: Rect) -> bool:
    across = outer.x <= inner.x and inner.x + inner.width <= outer.x + outer.width
    return across and outer.y <= inner.y and inner.y + inner.height <= outer.y + outer.height


def overlap(one: Rect, two: Rect) -> bool:
    across = one.x < two.x + two.width - 0.01 and two.x < one.x + one.width - 0.01
    return across and one.y < two.y + two.height - 0.01 and two.y < one.y + one.height - 0.01


def everything_placed(made: Picture) -> Iterator[Rect]:
    """What may not cover each other: boxes, the legend, and all texts around and between them."""
    yield from (block.rect for block in (*made.blocks, *made.swatches))
    yield from (extent(words, 15.0 if words.tone == "title" else 10.5) for words in made.words)
    yield from (extent(words, 9.0) for words in made.wire_words)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_overlaps_and_everything_is_inside(name: str, direction: Direction) -> None:
    made = drawn(GRAPHS[name], direction, saved=True)
    page = Rect(0, 0, made.width, made.height)
    placed = list(everything_placed(made))
    assert all(contains(page, rect) for rect in placed)
    assert not [pair for pair in combinations(placed, 2) if overlap(*pair)]
    assert made.curves.points[:, 0].max(initial=0) <= made.width and made.curves.points.min(initial=0) >= 0


@pytest.mark.parametrize("direction", ["down", "right"])
@pytest.mark.parametrize("name", GRAPHS)
def test_real_layouts_overlap_nothing(name: str, direction: Direction) -> None:
    made = picture(GRAPHS[name], Options(direction=direction, saved=True))
    page = Rect(0, 0, made.width, made.height)
    placed = list(everything_placed(made))
    assert all(contains(page, rect) for rect in placed)
    assert not [pair for pair in combinations(placed, 2) if overlap(*pair)]


def test_edges_join_their_boxes() -> None:
    made = picture(GRAPHS["random"], Options(direction="down"))
    for i, (source, target) in enumerate(ends(made)):
        begin, tip = made.curves.points[made.curves.starts[i]], made.curves.heads[i, 0]
        for (x, y), block in ((begin, source), (tip, target)):
            rect = made.blocks[block].rect
            wide = Rect(rect.x - 2, rect.y - 2, rect.width + 4, rect.height + 4)
            assert contains(wide, Rect(x, y, 0, 0))
        assert begin[1] < tip[1]


@pytest.mark.parametrize("name", GRAPHS)
def test_text_stays_in_its_box(name: str) -> None:
    for block in drawn(GRAPHS[name], saved=True).blocks:
        rows = [extent(words) for words in block.words]
        assert all(contains(block.rect, row) for row in rows)
        assert all(
            words.width == pytest.approx(text_width(words.text, SIZES[words.tone], words.tone in BOLD))
            for words in block.words
        )
        assert not [pair for pair in combinations(rows, 2) if overlap(*pair)]


@pytest.mark.parametrize("name", GRAPHS)
def test_the_picture_shows_the_whole_scene(name: str) -> None:
    graph = GRAPHS[name]
    expected = scene(graph, Options())
    made = drawn(graph)
    assert [block.kind for block in made.blocks] == [box.kind for box in expected.boxes]
    assert len(made.wires) == len(expected.links) == len(made.curves.starts) - 1
    assert [swatch.kind for swatch in made.swatches] == [entry.kind for entry in expected.legend]
    shown = " ".join(words.text for words in made.words)
    assert all(word in shown for line in expected.footer for word in line.split())


@pytest.mark.parametrize(("direction", "axis"), [("down", 1), ("right", 0)])
def test_data_flows_in_the_direction_asked_for(direction: Direction, axis: int) -> None:
    made = picture(GRAPHS["chain"], Options(direction=direction))
    middles = [(b.rect.x + b.rect.width / 2, b.rect.y + b.rect.height / 2) for b in made.blocks]
    for i, (source, target) in enumerate(ends(made)):
        points = made.curves.points[made.curves.starts[i] : made.curves.starts[i + 1]]
        assert middles[source][axis] < points[0, axis] < points[-1, axis] < middles[target][axis]


def test_a_long_name_breaks_over_lines_and_is_told_in_the_tooltip() -> None:
    name = "VeryLong" * 9
    made = drawn(Graph(nodes=(Node(0, name, (TensorInfo((2,), "float32", "cpu"),)),)))
    first, second = (words.text for words in made.blocks[0].words)
    assert len(first) == MAX_LETTERS and first + second == name
    assert name in made.blocks[0].tooltip


def test_flags_are_marked_and_said_in_words() -> None:
    for flags, warning in ((("custom", "modified"), ["modified in place"]), (("custom", "hooks"), [])):
        made = drawn(Graph((Node(0, "ExpBackward0", flags=flags),)))
        assert [block.marked for block in made.blocks] == [bool(warning)]
        words = {words.text: words.tone for words in made.blocks[0].words}
        assert words["custom function"] == "plain"
        assert [text for text, tone in words.items() if tone == "warning"] == warning


def test_labels_of_lines_side_by_side_cover_none_of_them() -> None:
    made = picture(multi_output(), Options())
    words = [extent(label, 9.0) for label in made.wire_words]
    assert len(words) == 2
    for point in samples(made.curves)[0].tolist():
        assert not any(contains(label, Rect(*point)) for label in words)


def test_labels_keep_off_lines_however_long_these_are() -> None:
    """As those of an LSTM cell's gates did not, in a picture of all its steps."""
    upright = [[[x, 0], [x, 30_000], [x, 60_000], [x, 90_000]] for x in (110, 160)]
    curves = Curves(np.array(upright, float).reshape(-1, 2), np.array([0, 4, 8]), np.full((2, 3, 2), np.nan))
    room = Rect(90.0, 0.0, 100.0, 90_000.0)
    (words,) = label_words(["(4, 16)", ""], curves, np.empty((0, 4)), room)
    assert words.text == "(4, 16)" and 110 < words.x < words.x + words.width < 160


def test_labels_of_edges_keep_off_the_borders_and_titles_of_frames() -> None:
    """Lines that pass close by a frame, as those of a recurrent cell's weights do."""
    line = np.array([[[4, 0], [4, 20], [40, 10], [40, 40]], [[40, 40], [40, 300], [40, 400], [40, 700]]], float)
    points = np.concatenate([line[0], line[1][1:]])
    curves = Curves(points, np.array([0, len(points)]), np.full((1, 3, 2), np.nan))
    title = Words(60.0, 60.0, "cell", "dim", 40.0, centred=False)
    frame = FrameBlock(Rect(54.0, 44.0, 400.0, 620.0), (title,), "", 0)
    room = Rect(12.0, -20.0, 600.0, 760.0)  # the page's own border is as close on the other side
    (words,) = label_words(["×9999"], curves, np.array([[10.0, 668.0, 100.0, 40.0]]), room, [frame])
    assert contains(room, extent(words, 9.0))
    assert contains(frame.rect, extent(words, 9.0)) or not overlap(extent(words, 9.0), frame.rect)
    assert not overlap(extent(words, 9.0), extent(title))


def test_frames_surround_their_boxes_and_have_a_title() -> None:
    boxes = tuple(Box(i, "op", ("AddBackward0",), i, Node(i, "AddBackward0"), frame=i and 0) for i in range(3))
    boxes = (boxes[0]._replace(frame=None), *boxes[1:])
    framed = Scene(
        "", boxes, (Link(0, 1), Link(1, 2)), (Legend("op", "backward function"),), (), (Frame("layer1", None, 0),)
    )
    made = compose(folding(chain(4)), framed, Page(framed))
    (frame,) = made.frames
    assert [contains(frame.rect, block.rect) for block in made.blocks] == [False, True, True]
    assert (
        frame.words[0].text == "layer1"
        and abs(extent(frame.words[0]).y + extent(frame.words[0]).height / 2 - frame.rect.y) < 2
    )
    assert not any(overlap(extent(frame.words[0]), block.rect) for block in made.blocks)


def test_a_title_of_several_words_is_broken_and_never_cut() -> None:
    title = "layers.2–11 JambaAttentionDecoderLayer, JambaMambaDecoderLayer"
    group = Group("alike", title, (0,), 5, ops=3)
    made = drawn(Graph(nodes=(Node(0, title, group=group),)))
    assert " ".join(words.text for words in made.blocks[0].words if words.tone == "strong") == f"{title}, 5 alike"


# -- measures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a b c", "one two three four", "x" * 50, "漢字" * 20, "a " + "b" * 30])
def test_wrapped_lines_fit_and_lose_nothing(text: str) -> None:
    lines = wrapped(text, 10)
    assert all(0 < len(line) <= 10 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_loop_is_drawn_beside_its_box(direction: Direction) -> None:
    group = Node(0, "cell Cell", group=Group("loop", "cell Cell", (0, 1, 2), 3, 3, passed=((0, 0),)))
    made = picture(Graph((group,), (Edge(0, 0, 0, 0, 2),)), Options(direction=direction))
    (box,) = [block.rect for block in made.blocks]
    points = made.curves.points
    assert len(points) == 7 and is_loop(points) == (direction == "down")
    beyond = points[:, 1] - (box.y + box.height) if direction == "right" else points[:, 0] - (box.x + box.width)
    assert beyond.min() >= 0 and 10 < beyond.max() < 30
    assert points[:, 0].max() < made.width and points[:, 1].max() < made.height
    assert [words.text for words in made.wire_words if words] == []


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lines_of_a_box_with_a_loop_end_at_the_box(direction: Direction) -> None:
    """The room for the loop is none of the box: of many lines, the outer ones once began beside it."""
    nodes = tuple(Node(i, "ExpBackward0") for i in range(9))
    edges = (Edge(0, 0, 0, 0, 2), *(Edge(i, 0, 0, 0) for i in range(1, 9)))
    made = picture(Graph(nodes, tuple(sorted(edges))), Options(direction=direction))
    assert sum(source == target for source, target in ends(made)) == 1
    for i, (source, target) in enumerate(ends(made)):
        if source != target:
            x, y = made.curves.points[made.curves.starts[i]]
            rect = made.blocks[source].rect
            assert rect.x - 1 <= x <= rect.x + rect.width + 1 and rect.y - 1 <= y <= rect.y + rect.height + 1


def test_a_long_chain_that_runs_down_turns_nowhere_as_its_line_up_again_would_look_like_a_skip() -> None:
    down, right = (picture(chain(40), Options(direction=way)) for way in ("down", "right"))
    assert len({block.rect.x + block.rect.width / 2 for block in down.blocks}) == 1
    assert len({block.rect.y + block.rect.height / 2 for block in right.blocks}) > 1
