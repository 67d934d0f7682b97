"""What a reader of a folded graph is told to ask for does show more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from gradviz.fold.export import fold
from gradviz.fold.opening import Deeper
from gradviz.graph import Edge, Graph, Node, Scope
from gradviz.graph.origins import ScopeTree
from tests.builders import chain
from tests.fold.test_fold import blocks, functions, loop, nested, pages, programs, titles


def deeper(folded: Graph) -> Deeper:
    return folded.folding.opening.deeper() if folded.folding is not None else Deeper()


def opened(graph: Graph) -> set[int]:
    """The calls that are open in a folded graph."""
    tree = ScopeTree(graph)
    return {scope for node in graph.nodes for scope in tree.around(node.scope)}


def test_names_the_largest_closed_module_and_the_depth_that_opens_it() -> None:
    assert deeper(fold(nested(12), depth=3)) == Deeper(4, "blocks.0.attention")
    assert deeper(fold(blocks(12), depth=2)) == Deeper(3, "blocks.0")


def test_a_repeat_whose_first_is_open_is_opened_by_its_path_only() -> None:
    folded = fold(blocks(12), depth=4)
    assert titles(folded) == [("alike", "blocks.1–11 Block", 11)]
    assert deeper(folded) == Deeper(None, "blocks.1")


def test_the_later_turns_of_a_loop_are_opened_by_nothing_but_every_op() -> None:
    assert deeper(fold(loop(100), depth=1)) == Deeper(2, "cell")
    assert deeper(fold(loop(100), depth=2)) == Deeper(None, None)


def test_no_depth_is_told_that_would_open_nothing_but_a_call_again() -> None:
    scopes = (
        Scope("m0", "M0", 1, None),
        Scope("m0.m3", "M3", 1, 0),
        Scope("m0", "M0", 2, None),
        Scope("m0.m3", "M3", 2, 2),
    )
    nodes = tuple(Node(i, "MulBackward0", (), i, 1 if i % 40 < 20 else 3) for i in range(40))
    graph = Graph(nodes, tuple(Edge(i + 1, i, 0, 0) for i in range(39)), scopes=scopes)
    for depth in (1, 2, 3):
        folded = fold(graph, depth=depth)
        found = deeper(folded).depth
        assert found is None or opened(folded) < opened(fold(graph, depth=found))


def test_segments_and_chains_have_neither() -> None:
    assert deeper(fold(functions(100))) == deeper(fold(chain(1000))) == Deeper()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(1, 3), st.booleans())
def test_a_depth_opens_more_and_closes_nothing(graph: Graph, depth: int, auto: bool) -> None:
    folded = fold(graph, limit=6, measure=pages(4 * depth)) if auto else fold(graph, depth=depth)
    found = deeper(folded)
    if found.depth is not None:
        assert opened(folded) < opened(fold(graph, depth=found.depth))
    if found.path is not None:
        again = (
            fold(graph, limit=6, measure=pages(4 * depth), expand=[found.path])
            if auto
            else fold(graph, depth=depth, expand=[found.path])
        )
        assert opened(folded) < opened(again)
