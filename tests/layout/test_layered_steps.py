"""The steps of the layered engine against slow and simple ways of finding the same."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, strategies as st

from gradviz.layout import Ints
from gradviz.layout.layered.grouping import components
from gradviz.layout.layered.layers import cut_into_layers
from gradviz.layout.layered.ordering import Order, exchange, inversions
from gradviz.layout.layered.sheet import Sheet

pairs = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=40)


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=6))
def test_inversions_are_the_pairs_out_of_order(groups: list[list[int]]) -> None:
    expected = [sum(a > b for a, b in itertools.combinations(values, 2)) for values in groups]
    owner = np.repeat(np.arange(len(groups)), [len(values) for values in groups])
    values = np.array(list(itertools.chain(*groups)), np.int64)
    assert inversions(values, owner, len(groups)).tolist() == expected


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


def _ends(edges: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    array = np.array(edges, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _sheet(size: int, above: Ints, below: Ints) -> Sheet:
    boxes, middle, zeros = np.full(size, 20.0), np.zeros(len(above)), np.zeros(size, np.int64)
    return Sheet(boxes, boxes, above, below, middle, middle, zeros, 1, zeros, zeros, 14.0, 26.0, boxes)


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
