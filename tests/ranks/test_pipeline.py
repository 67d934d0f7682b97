"""Stages joined into one graph, made by hand: what their slots refer to is numbered anew."""

from __future__ import annotations

from dataclasses import replace

from gradviz.graph import Edge, Graph, Leaf, Node, Root, SavedTensor, Storage, TensorInfo
from gradviz.memory.saved import saved
from gradviz.ranks.pipeline import joined, stitched
from gradviz.ranks.rank_diff import RankDiff

SPARSE = TensorInfo((9, 9), "float32", "cpu", "sparse_coo")


def stage(rank: int, nbytes: int) -> RankDiff:
    """A stage that saved one sparse tensor of 10 bytes of values and so many of indices."""
    slot = SavedTensor(
        "self", SPARSE, 1, "activation", "live", note="indices in storage 0, values in storage 1", parts=(0, 1)
    )
    storages = (Storage(0, nbytes, "activation"), Storage(1, 10, "activation"))
    graph = Graph(
        (Node(0, "MmBackward0", sequence=0, saved=(slot,)),), storages=storages, title=f"net, rank {rank} of 2"
    )
    return RankDiff(graph, (rank,), [(rank,)], ((rank,),), (), (), {rank: nbytes + 10}, {}, 2)


def test_every_part_of_a_sparse_tensor_stays_in_its_own_stage() -> None:
    found = stitched({0: stage(0, 100), 1: stage(1, 2000)}).graph
    assert [node.saved[0].storages for node in found.nodes] == [(1, 0), (3, 2)]
    assert sorted(row.nbytes for row in saved(found, "node").rows) == [110, 2010]


CPU = TensorInfo((2,), "float32", "cpu")


def microbatch(number: int, nbytes: int = 8) -> Graph:
    """A stage that multiplies what it receives by its parameter."""
    slots = (
        SavedTensor("self", CPU, 1, "parameter", "live", 8, leaf=1),
        SavedTensor("other", CPU, 0, "activation", "live", nbytes),
    )
    received = f"stage.args_recv_info[{number}][0].buffer"
    return Graph(
        (
            Node(0, "MulBackward0", (CPU,), 7 * number, saved=slots),
            Node(1, "AccumulateGrad"),
            Node(2, "AccumulateGrad"),
        ),
        (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1)),
        (Leaf(1, ("w",), CPU, "parameter", storage=1), Leaf(2, (received,), CPU)),
        (Root(0, 0, "out", CPU),),
        storages=(Storage(0, nbytes, "activation"), Storage(1, 8, "parameter")),
        title=f"net, rank 0 of 2: backward() at a.py:1, call {number + 1}",
    )


def test_microbatches_share_parameters_and_hold_tensors_of_their_own() -> None:
    found = joined([microbatch(0), microbatch(1), microbatch(2, nbytes=20)])
    assert [leaf.names[0] for leaf in found.leaves if leaf.kind == "parameter"] == ["w"]
    assert [(edge.consumer, edge.producer) for edge in found.edges] == [(0, 1), (0, 2), (3, 1), (3, 4), (5, 1), (5, 6)]
    assert {node.saved[0].storage for node in found.nodes if node.saved} == {found.leaves[0].storage}
    assert [storage.nbytes for storage in found.storages] == [8, 8, 8, 20]
    assert found.title.endswith("calls 1-3")
    assert found.notes[0].startswith("3 microbatches of one step: 0-1 alike, 2 differs")


def test_each_microbatch_is_received_from_the_one_that_was_sent() -> None:
    def part(rank: int) -> RankDiff:
        graph = replace(joined([microbatch(0), microbatch(1)]), title=f"net, rank {rank} of 2")
        return RankDiff(graph, (rank,), [(rank,)] * len(graph.nodes), ((rank,),), (), (), {rank: 16}, {}, 2)

    assert "not drawn: stages 0, 2; of a rank" in stitched({1: part(0), 3: part(1)}).graph.notes[1]
    graph = stitched({0: part(0), 1: part(1)}).graph
    received = {node.id: node for node in graph.nodes if node.op == "Recv"}
    sent = {graph.inputs(node)[0].producer for node in received}
    paths = [graph.scopes[graph.nodes[node].scope or 0].path for node in sorted(sent)]
    assert paths == ["stage0.microbatch0", "stage0.microbatch1"]
    assert [root.name for root in graph.roots] == ["stage1.microbatch0.out", "stage1.microbatch1.out"]
