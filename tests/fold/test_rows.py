"""How tall boxes will be drawn: boxes on the longest way, and the borders of frames on it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gradviz.draw.options import Options
from gradviz.draw.picture import picture
from gradviz.fold.fold import BORDER, fold, rows
from gradviz.fold.partition import Partition
from gradviz.graph import Graph
from gradviz.graph.origins import ScopeTree
from tests.builders import chain
from tests.fold.test_fold import blocks, loop, nested


def height(graph: Graph) -> float:
    return rows(Partition(graph), ScopeTree(graph))


@pytest.mark.parametrize("length", [1, 2, 30])
def test_a_chain_has_a_row_for_each_op_and_one_for_its_leaf(length: int) -> None:
    assert height(chain(length)) == length + 1


def test_nothing_has_no_rows() -> None:
    assert height(Graph()) == 0


def test_frames_count_where_the_way_enters_and_leaves_them() -> None:
    ops, borders = 1 + 3 * 2 + 1 + 1, 2 + 3 * 4  # the net's frame once, then each block's and each linear's
    assert height(blocks(3)) == ops + BORDER * borders


def test_what_was_joined_is_one_row() -> None:
    assert height(fold(loop(100), depth=1)) == 4  # leaf, op, loop, sum


def test_more_rows_are_more_pixels() -> None:
    """The scale that the default height is chosen by: about 100 pixels a row."""
    folded = [fold(nested(12), depth=depth) for depth in (1, 2, 3, 4)]
    tall = [(height(graph), picture(graph, Options(depth="all", layout="layered")).height) for graph in folded]
    for (fewer, lower), (more, taller) in pairwise(tall):
        assert 70 < (taller - lower) / (more - fewer) < 130
