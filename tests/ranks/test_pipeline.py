"""Stages joined into one graph, made by hand: what their slots refer to is numbered anew."""

from __future__ import annotations

from gradviz.graph import Graph, Node, SavedTensor, Storage, TensorInfo
from gradviz.memory.saved import saved
from gradviz.ranks.pipeline import stitched
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
