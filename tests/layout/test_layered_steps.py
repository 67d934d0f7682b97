"""The steps of the layered engine against slow and simple ways of finding the same."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings, strategies as st

from gradviz.layout import Drawing, Ints
from gradviz.layout.layered.coordinates import Constraints, pack
from gradviz.layout.layered.grouping import components, follow_adding, place_in_group
from gradviz.layout.layered.layers import Sheet, cut_into_layers, plain_sheet
from gradviz.layout.layered.nesting import FrameTree, against_the_stream
from gradviz.layout.layered.ordering import Order, exchange, inversions
from gradviz.layout.layered.ranks import longest_ways, neighbours, rank_nodes
from gradviz.layout.layered.routes import Routes, without_idle_points

pairs = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=40)


@given(st.lists(st.integers(0, 30), max_size=60))
def test_inversions_are_the_pairs_out_of_order(values: list[int]) -> None:
    expected = sum(a > b for a, b in itertools.combinations(values, 2))
    assert inversions(np.array(values, np.int64)) == expected


@given(pairs)
def test_components_are_what_can_reach_each_other(edges: list[tuple[int, int]]) -> None:
    first, second = _ends(edges)
    label, count = components(15, first, second)
    groups = [{i} for i in range(15)]
    for a, b in edges:
        if groups[a] is not groups[b]:
            groups[a] |= groups[b]
            for i in groups[b]:
                groups[i] = groups[a]
    assert all((label[i] == label[j]) == (j in groups[i]) for i in range(15) for j in range(15))
    assert sorted(set(label.tolist())) == list(range(count))


@given(pairs)
def test_ranks_go_down_along_every_edge(edges: list[tuple[int, int]]) -> None:
    above, below = _ends([(min(e), max(e)) for e in edges if e[0] != e[1]])
    ranking = rank_nodes(neighbours(15, above, below))
    assert (ranking.rank[above] < ranking.rank[below]).all()
    assert (ranking.height[above] > ranking.height[below]).all()


@given(pairs)
def test_the_straight_edges_of_a_component_are_one_longest_way(
    edges: list[tuple[int, int]],
) -> None:
    above, below = _ends(sorted({(min(e), max(e)) for e in edges if e[0] != e[1]}))
    near, (component, count) = neighbours(15, above, below), components(15, above, below)
    height = rank_nodes(near).height

    straight = longest_ways(near, height, component, np.zeros(15, np.bool_), above >= 0)
    for number in range(count):
        way = np.flatnonzero(straight & (component[above] == number))
        assert len(way) == height[component == number].max()
        ends = sorted(zip(above[way].tolist(), below[way].tolist()))
        assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))

    fewer = longest_ways(near, height, component, np.zeros(15, np.bool_), above < 0)
    assert not (fewer & ~straight).any()
    assert (straight & ~fewer).sum() <= 2 * count


def test_place_in_group_counts_occurrences() -> None:
    assert place_in_group(np.array([4, 2, 4, 4, 2])).tolist() == [0, 0, 1, 2, 1]


def test_follow_adding_sums_the_steps_to_the_end() -> None:
    end, total = follow_adding(np.array([0, 0, 1, 2]), np.array([0.0, 1.0, 2.0, 4.0]))
    assert end.tolist() == [0, 0, 0, 0]
    assert total.tolist() == [0.0, 1.0, 3.0, 7.0]


def test_packing_keeps_distances_and_leaves_no_slack_on_the_left() -> None:
    limits = Constraints(np.array([0, 0, 1]), np.array([1, 2, 3]), np.array([10.0, 3.0, 5.0]))
    assert pack(4, limits).tolist() == [0.0, 10.0, 3.0, 15.0]


@settings(max_examples=50)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=8), max_size=4))
def test_dropping_idle_points_keeps_ends_and_shape(lines: list[list[tuple[int, int]]]) -> None:
    starts = np.append(0, np.cumsum([len(line) for line in lines])).astype(np.int64)
    points = np.array([point for line in lines for point in line], np.float64).reshape(-1, 2)
    slim = without_idle_points(Routes(points, starts))
    for i, line in enumerate(lines):
        rest = slim.points[slim.starts[i] : slim.starts[i + 1]].tolist()
        assert tuple(rest[0]) == line[0] and tuple(rest[-1]) == line[-1]
        assert {x for x, _ in rest} <= {x for x, _ in line}


def _ends(edges: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    array = np.array(edges, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _sheet(size: int, above: Ints, below: Ints) -> Sheet:
    boxes = np.full(size, 20.0)
    return plain_sheet(Drawing(boxes, boxes, np.column_stack((above, below)), np.full(size, -1)))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(7, 14)), max_size=30, unique=True))
def test_crossings_between_two_rows_are_the_pairs_that_cross(edges: list[tuple[int, int]]) -> None:
    above, below = _ends(edges)
    everything = np.arange(15)
    component, count = np.zeros(15, np.int64), 1
    row = (everything > 6).astype(np.int64)
    sheet = _sheet(15, above, below)
    layers = cut_into_layers(sheet, row, component, count, np.zeros(len(edges), np.bool_))
    expected = sum((a < c and b > d) or (a > c and b < d) for (a, b), (c, d) in itertools.combinations(edges, 2))
    order = Order(layers, everything)
    assert order.crossings().tolist() == [expected, 0]
    exchange(order, 20)
    assert order.crossings().sum() <= expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20), st.lists(st.integers(0, 2), min_size=10))
def test_only_edges_between_frames_on_a_cycle_go_up(edges: list[tuple[int, int]], frame_of: list[int]) -> None:
    rank = np.arange(10)
    above, below = _ends([(min(e), max(e)) for e in edges if e[0] != e[1]])
    home = np.array([*frame_of[:10], 3, 3, 3], np.int64)
    one, other = _frames_or_boxes(home, above, below)
    up = against_the_stream(FrameTree(10, home, np.array([1, 1, 1, 0])), rank, one, other)
    graph = {(a, b) for a, b, u in zip(one.tolist(), other.tolist(), up.tolist()) if not u}
    graph |= {(b, a) for a, b, u in zip(one.tolist(), other.tolist(), up.tolist()) if u}
    ends = np.array(sorted(graph), np.int64).reshape(-1, 2)
    rank_nodes(neighbours(13, ends[:, 0], ends[:, 1]))  # raises on a cycle
    assert not up[(one < 10)].any()  # inside one frame boxes form no cycle


def _frames_or_boxes(home: Ints, above: Ints, below: Ints) -> tuple[Ints, Ints]:
    apart = home[above] != home[below]
    return np.where(apart, 10 + home[above], above), np.where(apart, 10 + home[below], below)


def test_long_edges_of_one_box_share_a_trunk() -> None:
    """0 to 5 is a way of its own, 1 leads to 6, 8 and 9, where the longest is: rows are the numbers."""
    above, below = np.array([0, *range(9), 1, 1, 1]), np.array([5, *range(1, 10), 6, 8, 9])
    main = np.array([*[True] * 10, *[False] * 3])
    sheet = _sheet(10, above, below)
    layers = cut_into_layers(sheet, np.arange(10), np.zeros(10, np.int64), 1, main)
    assert layers.bend_edge.tolist() == [0] * 4 + [12] * 7
    assert layers.long.tolist() == [0, 10, 11, 12]
    assert layers.first_bend.tolist() == [0, 4, 4, 4]
    pieces = set(zip(layers.above.tolist(), layers.below.tolist()))
    trunk = [1, *range(14, 21)]
    assert pieces == {
        *((i, i + 1) for i in range(9)),
        (0, 10), (10, 11), (11, 12), (12, 13), (13, 5),
        *itertools.pairwise(trunk), (17, 6), (19, 8), (20, 9),
    }  # fmt: skip
    assert all(layers.row[a] + 1 == layers.row[b] for a, b in pieces)


@given(pairs)
def test_pieces_lead_from_the_beginning_of_each_edge_to_its_end(edges: list[tuple[int, int]]) -> None:
    above, below = _ends(sorted({(min(e), max(e)) for e in edges if e[0] != e[1]}))
    row = rank_nodes(neighbours(15, above, below)).rank
    sheet = _sheet(15, above, below)
    layers = cut_into_layers(sheet, row, np.zeros(15, np.int64), 1, np.zeros(len(above), np.bool_))
    pieces = set(zip(layers.above.tolist(), layers.below.tolist()))
    first = dict(zip(layers.long.tolist(), layers.first_bend.tolist()))
    for i, (a, b) in enumerate(zip(above.tolist(), below.tolist())):
        way = [a, *(15 + first[i] + k for k in range(row[b] - row[a] - 1) if i in first), b]
        assert all(piece in pieces for piece in itertools.pairwise(way))
    sources = {a for i, a in enumerate(above.tolist()) if i in first}
    longest = {s: max(row[b] - row[a] - 1 for a, b in zip(above.tolist(), below.tolist()) if a == s) for s in sources}
    assert len(layers.bend_edge) == sum(longest.values())
