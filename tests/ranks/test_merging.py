"""Merging graphs of several ranks: what all have, what some have alone, and what differs, in every order."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import gradviz
from gradviz.errors import GraphFileError
from gradviz.graph import Edge, Graph, Leaf, Node, Process, SavedTensor, Scope, SourceLine, Storage, TensorInfo
from gradviz.ranks.merging import merge_files
from gradviz.ranks.rank_diff import RankDiff

CPU = TensorInfo((2, 3), "float32", "cpu")


def chain(ops: str, *, device: str = "cpu", rank: int | None = None, bytes: int = 24) -> Graph:
    """A chain of ops that ran in this order, one letter each, on one parameter; every op has a line of its own."""
    tensor = CPU._replace(device=device)
    nodes = [
        Node(
            i,
            f"{letter}Backward0",
            (tensor,),
            len(ops) - i,
            0,
            SourceLine("/code/train.py", ord(letter)),
            saved=(SavedTensor("self", tensor, i, "activation", "live", bytes),),
        )
        for i, letter in enumerate(reversed(ops))
    ]
    last = len(nodes)
    leaf = Node(last, "AccumulateGrad", (tensor,), names=("w",))
    return Graph(
        (*nodes, leaf),
        tuple(Edge(i, i + 1, 0, 0) for i in range(last)),
        (Leaf(last, ("w",), tensor, "parameter"),),
        scopes=(Scope("net", "Net", 1, None),),
        storages=tuple(Storage(i, bytes, "activation") for i in range(last)),
        title=f"train.py, rank {rank} of 8" if rank is not None else "train.py",
        process=Process(rank, 8) if rank is not None else None,
    )


def ops(found: RankDiff, nodes: tuple[int, ...]) -> str:
    return "".join(sorted(found.graph.nodes[i].op[0] for i in nodes))


def test_equal_ranks_are_one_group_and_have_nothing_alone() -> None:
    found = gradviz.merge([chain("ABC", device=f"cuda:{rank}") for rank in range(4)])
    assert found.groups == ((0, 1, 2, 3),) and found.empty
    assert len(found.shared) == 4 and set(found.only.values()) == {()}
    assert found.bytes_by_rank == dict.fromkeys(range(4), 72)
    assert found.graph.marks == ()


def test_one_rank_took_another_branch() -> None:
    found = gradviz.merge([chain("ABCD", rank=0), chain("AXYCD", rank=7), chain("ABCD", rank=3)])
    assert found.groups == ((0, 3), (7,))
    assert (ops(found, found.only[0]), ops(found, found.only[7]), ops(found, found.shared)) == ("B", "XY", "AACD")
    assert found.missing == (1, 2, 4, 5, 6)
    assert found.graph.title == "train.py, ranks 0, 3, 7 of 8"
    assert [(mark.id, mark.kind) for mark in found.graph.marks][:2] == [
        ("ranks 0, 3 only", "added"),
        ("rank 7 only", "added"),
    ]
    assert "rank 7: net, train.py:88: XBackward0" in [mark.words for mark in found.graph.marks]
    assert "0, 3 alike, 7 differs" in str(found)


def test_the_same_nodes_of_other_sizes_differ() -> None:
    found = gradviz.merge([chain("AB"), chain("AB", bytes=48)])
    assert len(found.shared) == 3 and found.groups == ((0,), (1,))
    assert found.varying[0].ways == (((0,), ("saved bytes 24",)), ((1,), ("saved bytes 48",)))
    assert {mark.kind for mark in found.graph.marks} == {"changed"}


@pytest.mark.parametrize("seed", range(20))
def test_every_rank_can_be_had_back(seed: int) -> None:
    """Whatever is merged in whatever order: the nodes and edges of each rank are as many as it gave, and there is no cycle."""
    random.seed(seed)
    words = ["".join(c for c in "ABCDEFGHIJ" if random.random() < 0.7) + "Z" for _ in range(5)]
    graphs = [chain(word) for word in words]
    found = gradviz.merge(graphs)
    assert len(found.graph.order) == len(found.graph.nodes)
    for rank, word in enumerate(words):
        own = {node for node, ranks in enumerate(found.having) if rank in ranks}
        assert ops(found, tuple(own)) == "".join(sorted(word + "A"))
    some = {(edge.consumer, edge.producer): ranks for edge, ranks in found.some_edges}
    for rank, graph in enumerate(graphs):
        own = {node for node, ranks in enumerate(found.having) if rank in ranks}
        edges = [e for e in found.graph.edges if {e.consumer, e.producer} <= own]
        assert sum(rank in some.get((e.consumer, e.producer), (rank,)) for e in edges) == len(graph.edges)
    places = [(edge.consumer, edge.position) for edge in found.graph.edges]
    assert places == sorted(set(places))


def test_files_of_other_kinds_of_devices_are_not_taken_to_be_equal(tmp_path: Path) -> None:
    graphs = [chain("AB", device=device) for device in ("cuda:0", "cuda:1", "xpu:0")]
    paths = [graph.save(str(tmp_path / f"rank{rank}.json")) for rank, graph in enumerate(graphs)]
    assert merge_files(paths).groups == gradviz.merge(graphs).groups == ((0, 1), (2,))


def test_the_merged_graph_is_drawn_with_badges(tmp_path: Path) -> None:
    found = gradviz.merge([chain("ABCD", rank=0), chain("AXCD", rank=1)])
    for name in ("a.svg", "a.dot", "a.md", "a.txt"):
        text = Path(found.graph.save(str(tmp_path / name))).read_text(encoding="utf-8")
        assert "XBackward0" in text and "rank 1 only" in text, name
    with pytest.raises(GraphFileError, match="merged of ranks 0-1 already"):
        gradviz.merge([found.graph])


def test_a_file_of_merged_ranks_keeps_who_has_what(tmp_path: Path) -> None:
    graph = gradviz.merge([chain("ABCD", rank=0), chain("AXCD", rank=1)]).graph
    path = graph.save(str(tmp_path / "all.json"))
    back = gradviz.load(path)
    assert (back, back.marks) == (graph, graph.marks)
    with pytest.raises(GraphFileError, match="merged of ranks 0-1 already"):
        merge_files([path, path])


def test_what_a_process_says_of_itself_is_in_its_file(tmp_path: Path) -> None:
    process = Process(2, 4)
    graph = replace(chain("AB"), process=process)
    path = graph.save(str(tmp_path / "net.json"))
    assert gradviz.load(path) == graph

    older = Path(path).read_text().replace('"world":4', '"world":4,"parameters":["w"],"wrapped":"FSDP2"')
    Path(path).write_text(older)
    assert '"wrapped"' in older and gradviz.load(path) == graph and merge_files([path]).missing == (0, 1, 3)


def test_a_rank_is_given_once() -> None:
    with pytest.raises(GraphFileError, match="two graphs of rank 2"):
        gradviz.merge([chain("A", rank=2), chain("A", rank=2)])
    with pytest.raises(GraphFileError, match="no graph to merge"):
        gradviz.merge([])


def test_a_mapping_says_the_ranks() -> None:
    assert gradviz.merge({5: chain("A"), 3: replace(chain("A"), title="other")}).ranks == (3, 5)
