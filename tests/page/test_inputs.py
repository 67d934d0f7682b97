"""Tensors without gradient that ops were given, on the page: where each stands, and how many boxes there are."""

from __future__ import annotations

from dataclasses import replace

from gradviz.fold.grouping import grouped
from gradviz.graph import Data, Graph
from gradviz.page.sheets import DATA, Walk
from tests.builders import tensor
from tests.page.graphs import blocks


def walk(graph: Graph, *data: Data) -> Walk:
    with_data = replace(graph, data=data)
    return Walk(grouped(with_data))


def boxes(made: Walk) -> list[tuple[str, str]]:
    """The title of each box, and the class of the module that it stands in."""
    found = []
    for cell in made.cells:
        if cell.kind == DATA:
            scope = cell.group.scope_around
            found.append((made.inputs[cell.record].title, made.graph.scopes[scope].type if scope is not None else ""))
    return found


def others(made: Walk) -> list[tuple[int, int, int]]:
    """All cells but those of data, by what they show and where."""
    return [(cell.record, cell.kind, cell.group.number) for cell in made.cells if cell.kind != DATA]


def test_what_the_user_gave_stands_on_the_page_and_what_a_module_made_inside_of_it() -> None:
    graph = blocks(3)
    assert boxes(walk(graph, Data(("x",), tensor(2), (4, 10)))) == [("x", "")]
    inner = Data(("blocks.0.inner.mask",), tensor(2), (2,), inner=True)
    assert boxes(walk(graph, inner)) == [("mask", "Inner")]
    assert boxes(walk(graph, inner._replace(nodes=(2, 4)))) == [("inner.mask", "Block")]


def test_every_use_is_an_edge_and_other_boxes_stay() -> None:
    graph = blocks(3)
    made = walk(graph, Data(("x",), tensor(2), (0, 4)), Data(("y",), tensor(), (0,)))
    ends = [
        (made.inputs[made.cells[a].record].title, made.cells[b].record)
        for a, b in made.edges()
        if made.cells[a].kind == DATA
    ]
    assert ends == [("x", 0), ("x", 4), ("y", 0)]
    assert others(made) == others(walk(graph))


def test_equal_ones_are_one_box_and_many_at_one_place_are_few() -> None:
    graph = blocks(3)
    slices = [Data(("x[:, t]",), tensor(2), (i,)) for i in range(4)]
    assert boxes(walk(graph, *slices)) == [("x[:, t] ×4", "")]
    many = [Data((f"x{i}",), tensor(2), (0,)) for i in range(9)]
    made = walk(graph, *many)
    assert [title for title, _ in boxes(made)] == ["x0", "x1", "x2", "x3", "+5 more"]
    assert sorted(i for box in made.inputs for i in box.data) == list(range(9))


def test_with_very_many_uses_each_has_a_box_beside_it() -> None:
    """Else the edges through the sheet around them, each as long as what is before the use, are the square of their number."""
    graph = blocks(90)
    users = tuple(6 * block + 2 for block in range(90))
    made = walk(graph, Data(("mask",), tensor(2), users))
    assert boxes(made) == [("mask", "Inner")] * 90
    assert sorted(node for box in made.inputs for node in box.nodes) == list(users)


def test_what_data_is_computed_from_comes_before_it() -> None:
    graph = blocks(3)
    first = Data(("x[0]",), tensor(2), (4,), of=(2,))
    second = Data(("x[1]",), tensor(), (0,), of=(2,))
    made = walk(graph, first, second, Data(("x",), tensor(4), ()))
    data = [cell.record for cell in made.cells if cell.kind == DATA]
    assert [made.inputs[number].title for number in data] == ["x", "x[0]", "x[1]"]
    assert all(source < target for source, target in made.edges() if made.cells[target].kind == DATA)
