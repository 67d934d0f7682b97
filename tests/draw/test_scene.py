"""The scene: which boxes and links a drawing has, whatever the format."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest

from gradviz.draw.options import Options
from gradviz.draw.palette import BoxKind
from gradviz.draw.scene import Box, Scene
from gradviz.fold.folding import unfolded
from gradviz.graph import Data, Edge, Graph, Group, Leaf, Node, Packing, Root, SavedTensor, Scope, Storage
from gradviz.report.labels import FLAG_WORDS
from tests.builders import (
    GRAPHS,
    accumulate,
    diamond,
    everything,
    folded,
    freed,
    leaf,
    shared_leaf,
    squared,
    tensor,
    views,
)
from tests.drawn import details, held_by_box, scene, shown

OPS = set(get_args(BoxKind)) - {"leaf", "output", "saved", "stale", "input"}


def titles(made: Scene, kind: str) -> list[str]:
    return [box.lines[0] for box in made.boxes if box.kind == kind]


def ends(made: Scene, style: str = "data") -> list[tuple[str, str]]:
    return [(made.boxes[a].lines[0], made.boxes[b].lines[0]) for a, b, kind, *_ in made.links if kind == style]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("leaves", ["auto", "shared", "per-use", "hidden"])
@pytest.mark.parametrize("saved", [False, True])
def test_what_holds_for_every_scene(name: str, leaves: str, saved: bool) -> None:
    graph = GRAPHS[name]
    made = scene(graph, Options.of({"leaves": leaves, "saved": saved}))
    assert [box.id for box in made.boxes] == list(range(len(made.boxes)))
    for box in made.boxes:
        assert box.lines and all(len(line.splitlines()) <= 1 for line in box.lines)
    for link in made.links:
        assert 0 <= link.source < len(made.boxes) and 0 <= link.target < len(made.boxes)
        assert link.source != link.target or (link.style == "data" and made.boxes[link.source].number is not None)
    assert {entry.kind for entry in made.legend} == {box.kind for box in made.boxes}
    drawn = {box.number for box in made.boxes if box.kind in (*OPS, "leaf")}
    missing = set(range(len(graph.nodes))) - drawn
    assert missing == (set(graph.leaf_of) if leaves == "hidden" else set())
    data = Counter(
        (made.boxes[a].number, made.boxes[b].number)
        for a, b, style, *_ in made.links
        if made.boxes[b].kind in OPS and style == "data"
    )
    wanted = Counter((edge.producer, edge.consumer) for edge in graph.edges if edge.producer not in missing)
    assert data == wanted
    assert sum(box.kind == "output" for box in made.boxes) == len(graph.roots)


def test_a_leaf_and_its_node_are_one_box() -> None:
    made = scene(diamond(), Options())
    assert titles(made, "leaf") == ["x"]
    assert ends(made) == [("exp", "add"), ("sin", "add"), ("x", "exp"), ("x", "sin"), ("add", "y")]


def test_parallel_edges_stay_apart() -> None:
    assert ends(scene(squared(), Options())) == [("a", "mul")] * 2 + [("mul", "y")]


def test_more_than_two_parallel_edges_are_one_link() -> None:
    made = scene(unbound((1, 5, 1)), Options())
    (link,) = (link for link in made.links if made.boxes[link.target].lines[0] == "stack")
    assert link.label == "(4,)"


def unbound(counts: tuple[int, ...]) -> Graph:
    """All outputs of an unbind are stacked; output i is used `counts[i]` times."""
    nodes = (
        Node(0, "StackBackward0", (tensor(4),), 1),
        Node(1, "UnbindBackward0", (tensor(4),) * len(counts), 0),
        accumulate(2),
    )
    edges = (*(Edge(0, 1, i, i, count) for i, count in enumerate(counts)), Edge(1, 2, 0, 0))
    return Graph(nodes, edges, (leaf(2, "x"),), (Root(0, 0, "y", tensor(4)),))


@pytest.mark.parametrize(
    ("packings", "words"),
    [(("recompute", "recompute"), "checkpoint: computed again"), (("recompute", "hook"), "packed by a hook")],
)
def test_what_a_checkpoint_packed_is_said_calmly(packings: tuple[Packing, ...], words: str) -> None:
    saved = tuple(SavedTensor("self", None, None, None, "packed", packing=packing) for packing in packings)
    (box,) = scene(Graph((Node(0, "ExpBackward0", saved=saved, flags=("packed",)),)), Options()).boxes
    assert words in box.lines and not box.flags


@pytest.mark.parametrize(
    ("leaves", "uses", "boxes"),
    [("auto", 4, 1), ("auto", 5, 5), ("shared", 5, 1), ("per-use", 2, 2), ("per-use", 1, 1), ("hidden", 5, 0)],
)
def test_how_often_a_leaf_is_drawn(leaves: str, uses: int, boxes: int) -> None:
    made = scene(shared_leaf(uses), Options.of({"leaves": leaves}))
    assert [title for title in titles(made, "leaf") if title != "x"] == ["weight"] * boxes
    words = "; ".join(made.footer)
    assert ("drawn once per use" in words) == (boxes > 1)
    assert ("not drawn: 2 leaves" in words) == (leaves == "hidden")


def test_the_tooltip_of_a_view_names_its_base() -> None:
    graph = views()
    told = {root.name: dict(details(graph, root)).get("view of") for root in graph.roots}
    assert told["flat"] == "e" and told["constant"] is None


def test_an_output_without_a_graph_says_why() -> None:
    box = next(box for box in scene(views(), Options()).boxes if box.lines[0] == "constant")
    assert box.number is None and box.lines[-1] == "no graph: it was made under torch.no_grad()"


def test_saved_tensors_are_drawn_when_asked() -> None:
    made = scene(everything(), Options(saved=True))
    assert [(box.kind, box.lines, box.flags) for box in made.boxes if isinstance(box.about, SavedTensor)] == [
        ("saved", ("self", "(s93, 4) float16 jagged cuda:0", "64 B"), ()),
        ("stale", ("other", "freed"), ()),
    ]
    assert ends(made, "saved") == [(name, "Scale") for name in ("self", "w = tied.w", "other")]
    assert titles(scene(everything(), Options()), "saved") == []


def saving(*slots: SavedTensor) -> Scene:
    """`x * w` where the slots given are saved; w's storage is 0."""
    nodes = (Node(0, "MulBackward0", (tensor(4),), 1, saved=slots), accumulate(1))
    leaves = (Leaf(1, ("w",), tensor(4), "parameter", storage=0),)
    storages = (Storage(0, 16, "parameter"), Storage(1, 4000, "activation"))
    graph = Graph(nodes, (Edge(0, 1, 0, 0),), leaves, storages=storages)
    return scene(graph, Options(saved=True))


@pytest.mark.parametrize(
    ("slot", "label"),
    [
        (SavedTensor("other", tensor(4), 0, "parameter", "live", 16, leaf=1), "saved as other"),
        (SavedTensor("mat2", tensor(2), 0, "parameter", "live", 8, True), "saved as mat2 (a view)"),
    ],
)
def test_a_saved_leaf_is_linked_and_not_drawn_again(slot: SavedTensor, label: str) -> None:
    made = saving(slot)
    assert titles(made, "saved") == []
    assert [(link.label, link.style) for link in made.links if link.label] == [(label, "saved")]


def test_a_leaf_that_was_modified_since_has_a_box_to_say_so() -> None:
    made = saving(SavedTensor("other", tensor(4), 0, "parameter", "modified", 16, leaf=1, version=2))
    assert titles(made, "stale") == ["other"]
    assert made.boxes[-1].lines[-1] == "modified in place"


def test_a_slot_says_how_large_its_storage_is() -> None:
    made = saving(SavedTensor("self", tensor(4), 1, "activation", "live", 16))
    assert made.boxes[2].lines[-1] == "16 B of a 3.9 KiB storage"


def test_colours_can_mean_memory() -> None:
    def slot(storage: int) -> SavedTensor:
        return SavedTensor("self", tensor(4), storage, "activation", "live", 16)

    sizes = (1000, 501, 500, 70, 50, 1)
    nodes = [Node(i, "ExpBackward0", (), 10 - i, saved=(slot(i),)) for i in range(len(sizes))]
    storages = tuple(Storage(i, nbytes, "activation") for i, nbytes in enumerate(sizes))
    made = scene(Graph((*nodes, Node(6, "AddBackward0", (), 1)), storages=storages), Options(color="memory"))
    assert [box.kind for box in made.boxes] == ["heat5", "heat5", "heat4", "heat2", "heat1", "heat1", "op"]
    assert [box.lines[-1] for box in made.boxes][:2] == ["holds 1000 B", "holds 501 B"]
    assert [entry.text for entry in made.legend][1:] == [
        "holds up to 62 B",
        "holds 62 B to 125 B",
        "holds 250 B to 500 B",
        "holds more than 500 B",
    ]
    assert any("2.1 KiB" in line for line in made.footer)


def test_folded_boxes_hold_what_is_inside() -> None:
    slot = SavedTensor("self", tensor(4), 0, "activation", "live", 16)
    nodes = tuple(Node(i, "ExpBackward0", (), 3 - i, saved=(slot._replace(storage=i),)) for i in range(3))
    storages = tuple(Storage(i, 100 * (i + 1), "activation") for i in range(3))
    whole = Graph(nodes, storages=storages)
    group = Node(0, "fc", group=Group("module", "fc", (0, 2), nbytes=400))
    folded = replace(unfolded(whole), boxes=(group, nodes[1]), box_of=[0, 1, 0], edges=())
    assert held_by_box(folded) == (400, 200)
    assert "not drawn: 2 saved tensors inside folded boxes" in scene(folded, Options(saved=True)).footer


def test_a_box_shows_where_it_was_made_when_asked() -> None:
    box: Box = scene(everything(), Options(details=True, names="variable")).boxes[0]
    assert box.lines[:3] == (
        "h = hidden",
        "Scale (s93, 4) float16 jagged cuda:0, unknown tensor",
        "main.py:3 → nets: train.py:12",
    )
    assert box.lines[-2:] == (FLAG_WORDS["custom"], FLAG_WORDS["hooks"]) and not box.flags  # no alarms


def test_the_usual_dtype_is_said_once() -> None:
    made = scene(folded(), Options())
    assert made.dtype == "dtype float32" and not any("float32" in line for box in made.boxes for line in box.lines)
    mixed = scene(GRAPHS["everything"], Options())
    assert mixed.dtype == "dtype float32 where a box names none"
    assert any("float16" in line for box in mixed.boxes for line in box.lines)


def test_freed_everywhere_is_said_once() -> None:
    made = scene(freed(), Options())
    assert not any(box.flags for box in made.boxes)
    assert any("freed" in line for line in made.footer)
    graph = freed()
    alive = graph.nodes[1].saved[0]._replace(state="live")
    half = Graph((graph.nodes[0]._replace(saved=(alive,)), *graph.nodes[1:]), graph.edges, graph.leaves, graph.roots)
    made = scene(half, Options())
    assert [box.flags for box in made.boxes if box.flags] == [("freed",)]
    assert not any("freed" in line for line in made.footer)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_box_has_facts_on_single_lines(name: str) -> None:
    for box in scene(GRAPHS[name], Options(saved=True)).boxes:
        found = details(GRAPHS[name], box.about)
        assert found and all(len(text.splitlines()) == 1 for _, text in found)


def test_what_python_cannot_read_is_said_in_the_tooltip_only() -> None:
    graph = Graph((Node(0, "ExpBackward0", flags=("hidden", "custom")),))
    (box,) = scene(graph, Options()).boxes
    assert FLAG_WORDS["hidden"] not in (*box.lines, *box.flags) and FLAG_WORDS["custom"] in box.lines
    assert FLAG_WORDS["hidden"] in dict(details(graph, graph.nodes[0]))["flags"]


@pytest.mark.parametrize("leaves", ["shared", "per-use"])
def test_data_stands_in_the_module_that_takes_it(leaves: str) -> None:
    scopes = (Scope("first", "First", 1, None), Scope("second", "Second", 1, None))
    nodes = (Node(0, "AddBackward0", scope=0), accumulate(1), Node(2, "MulBackward0", scope=1), Node(3, "ExpBackward0"))
    edges = (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1), Edge(2, 1, 0, 0), Edge(2, 3, 0, 1))
    data = Data(("mask",), tensor(2), (2,), inner=True)
    made = scene(Graph(nodes, edges, (leaf(1, "w"),), scopes=scopes, data=(data,)), Options.of({"leaves": leaves}))
    (box,) = [box for box in made.boxes if box.lines[0] == "mask"]
    assert box.frame is not None and made.frames[box.frame].title == "second Second"


def test_an_edge_into_what_is_written_into_has_no_shape_of_a_closed_module() -> None:
    """A linear layer makes (12, 8) of what it gives as (2, 6, 8)."""
    nodes = (
        Node(0, "CopySlices", (tensor(12, 8),), 2),
        Node(1, "AddmmBackward0", (tensor(12, 8),), 1, 0),
        accumulate(2),
    )
    edges = (Edge(0, 1, 0, 0), Edge(1, 2, 0, 0))
    graph = Graph(nodes, edges, (leaf(2, "w"),), (Root(0, 0, "y", tensor(12, 8)),), (Scope("fc", "Linear", 1, None),))
    for depth, expected in ((1, [""]), ("all", ["(12, 8)"])):
        made = scene(shown(graph, Options(depth=depth)), Options(depth=depth))
        ends = {box.id: box.lines[0] for box in made.boxes}
        assert [link.label for link in made.links if ends[link.target] not in ("y", "addmm", "fc Linear")] == expected
