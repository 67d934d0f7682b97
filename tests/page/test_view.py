"""What Python prepares for the page: order, groups, segments, leaves, sheets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings

from gradviz.draw.kinds import kind_of_node
from gradviz.fold.export import fold
from gradviz.fold.grouping import MOST, grouped
from gradviz.fold.groups import Groups, Section
from gradviz.fold.opening import Opening
from gradviz.graph import Edge, Graph, Node, Root, Scope
from gradviz.page.sheets import COPY, LEAF, OP, OUTPUT, Sheets, Walk, make_sheets
from gradviz.page.view import Texts
from tests.builders import GRAPHS, accumulate, chain, leaf, shared_leaf, tensor
from tests.page.graphs import PAGES, blocks
from tests.strategies import graphs

EVERY = {**GRAPHS, **PAGES}


def prepared(graph: Graph, shown: Graph | None = None) -> tuple[Groups, Walk, Sheets]:
    opening = shown.folding.opening if shown is not None else None
    groups = opening.groups if opening is not None else grouped(graph)
    made = Walk(groups)
    return groups, made, make_sheets(made, lambda item: 80.0)


def opening_of(shown: Graph) -> Opening:
    opening: Opening = shown.folding.opening
    return opening


def drawn(sheets: Sheets) -> Iterator[tuple[list[float], tuple[int, int], list[float]]]:
    """Of every edge the heights of all boxes of its sheet, which of them it joins, and the heights along its line."""
    middles, (points, starts), _ = sheets.placed
    heights = iter(middles[:, 1].tolist())
    lines = (points[first:end, 1].tolist() for first, end in pairwise(starts.tolist()))
    for shape in sheets.shapes:
        y = list(islice(heights, len(shape.widths) + shape.into + shape.out))
        yield from ((y, edge, line) for edge, line in zip(shape.edges, lines))


def check(graph: Graph) -> None:
    """What must hold of every graph."""
    groups, made, sheets = prepared(graph)
    cells = made.cells
    assert sorted(cell.record for cell in cells if cell.kind == OP) == [
        node.id for node in graph.nodes if node.id not in graph.leaf_of
    ]
    assert {cell.record for cell in cells if cell.kind in (LEAF, COPY)} == set(graph.leaf_of)
    assert sum(cell.kind == OUTPUT for cell in cells) == len(graph.roots)
    for items, number in zip(made.items.values(), sheets.of):
        assert [isinstance(item, Section) for item in items] == list(sheets.shapes[number].is_group)
    for y, (a, b), line in drawn(sheets):
        assert y[a] <= line[0] <= line[-1] <= y[b]  # downwards
    assert len(made.edges()) == len(graph.edges) + sum(root.node is not None for root in graph.roots)
    assert len(made.groups) == len(groups) and set(made.groups) == set(groups)


@pytest.mark.parametrize("name", EVERY)
def test_every_node_has_its_box(name: str) -> None:
    check(EVERY[name])


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(graphs())
def test_any_graph_can_be_a_page(graph: Graph) -> None:
    check(graph)


@pytest.mark.parametrize("graph", [chain(700), chain(5000), blocks(90), blocks(400)])
def test_no_sheet_is_large(graph: Graph) -> None:
    _, made, _ = prepared(graph)
    assert max(map(len, made.items.values())) <= MOST + 2  # a leaf and an output stand beside


def test_the_first_view_is_what_the_static_picture_shows() -> None:
    graph = blocks(60)
    shown = fold(graph)
    groups, made, _ = prepared(graph, shown)
    is_open = opening_of(shown).open
    visible = [group for group in groups if group not in is_open and group.parent in is_open]
    boxes = {node.group.nodes for node in shown.nodes if node.group is not None}

    def ops(group: Section) -> tuple[int, ...]:
        return tuple(sorted(cell.record for cell in made.cells if cell.kind == OP and group in cell.group.around()))

    folded = {tuple(i for i in box if i not in graph.leaf_of) for box in boxes}
    assert {ops(group) for group in visible} == folded


def test_a_closed_box_has_the_color_that_it_has_in_the_picture() -> None:
    named = {"Inner": "CausalSelfAttention", "Block": "BatchNorm2d"}
    for types in ({}, named):
        graph = blocks(60)
        scopes = tuple(scope._replace(type=types.get(scope.type, scope.type)) for scope in graph.scopes)
        graph = replace(graph, scopes=scopes)
        shown = fold(graph)
        _, made, _ = prepared(graph, shown)
        texts = Texts(made)
        colors = {frozenset(group.nodes): texts.group(group).color for group in made.groups}
        boxes = [node for node in shown.nodes if node.group is not None]
        for node in boxes:
            assert node.group is not None
            inside = frozenset(i for i in node.group.nodes if i not in graph.leaf_of)
            assert colors[inside] == kind_of_node(node)
        assert boxes and (not types or {"attention", "norm"} & {kind_of_node(node) for node in boxes})


def test_segments_are_closed_where_the_static_picture_folds() -> None:
    graph = chain(700)
    shown = fold(graph)
    groups, _, _ = prepared(graph, shown)
    segments = [group for group in groups if group.kind == "segment"]
    assert segments and opening_of(shown).open.isdisjoint(segments)
    assert fold(graph, depth="all") is graph


def test_a_call_that_others_interrupt_becomes_parts() -> None:
    """Two modules that feed each other by turns cannot both be one stretch."""
    nodes = tuple(Node(i, "MulBackward0", (tensor(2),), 8 - i, i // 2 % 2) for i in range(8))
    edges = tuple(Edge(i, i + 1, 0, 0) for i in range(7))
    graph = Graph(nodes, edges, (), (Root(0, 0, "y", tensor(2)),), (Scope("a", "A", 1, None), Scope("b", "B", 1, None)))
    groups, _, _ = prepared(graph)
    assert sorted(group.part for group in groups[1:]) == [1, 1, 2, 2]
    check(graph)


def test_what_goes_in_a_circle_is_drawn_upwards() -> None:
    """No autograd graph does, but the joined graph of two versions may."""
    nodes = tuple(Node(i, "MulBackward0", (tensor(2),), 3 - i) for i in range(3))
    edges = (Edge(0, 1, 0, 0), Edge(1, 2, 0, 0), Edge(2, 0, 0, 0))
    _, made, sheets = prepared(Graph(nodes, edges))
    lines = [line for _, _, line in drawn(sheets)]
    assert len(lines) == 3
    assert sum(line[0] > line[-1] for line in lines) == 1
    assert sorted(cell.record for cell in made.cells) == [0, 1, 2]


def test_the_order_keeps_calls_together_where_that_is_possible() -> None:
    """Two branches that ran by turns are independent, so each can be one stretch."""
    nodes = (Node(0, "Add", (), 9), *(Node(i, "Mul", (), 9 - i, i % 2) for i in range(1, 7)))
    edges = (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1), *(Edge(i, i + 2, 0, 0) for i in range(1, 5)))
    graph = Graph(nodes, edges, (), (Root(0, 0, "y", tensor()),), (Scope("a", "A", 1, None), Scope("b", "B", 1, None)))
    groups, _, _ = prepared(graph)
    assert [group.part for group in groups] == [0, 0, 0]


@pytest.mark.parametrize(("uses", "boxes"), [(9, 1), (90, 1), (400, 1)])
def test_a_leaf_is_split_only_when_many_boxes_of_a_sheet_use_it(uses: int, boxes: int) -> None:
    """400 equal ops in a row are one run, however many there are."""
    _, made, _ = prepared(shared_leaf(uses))
    assert sum(cell.kind in (LEAF, COPY) and cell.record == uses for cell in made.cells) == boxes


def test_parameters_of_a_module_that_is_called_again_stand_in_each_call() -> None:
    nodes = (Node(0, "MmBackward0", (), 2, 1), Node(1, "MmBackward0", (), 1, 0), accumulate(2))
    edges = (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1), Edge(1, 2, 0, 0))
    scopes = (Scope("cell", "Cell", 1, None), Scope("cell", "Cell", 2, None))
    _, made, _ = prepared(Graph(nodes, edges, (leaf(2, "w"),), (Root(0, 0, "y", tensor()),), scopes))
    assert [made.groups.index(cell.group) for cell in made.cells if cell.kind == COPY] == [1, 2]


def test_a_parameter_stands_inside_the_module_that_uses_it() -> None:
    graph = blocks(3)
    _, made, _ = prepared(graph)
    for cell in made.cells:
        if cell.kind == LEAF:
            scope = cell.group.scope
            assert scope is not None and graph.scopes[scope].type == "Inner"
