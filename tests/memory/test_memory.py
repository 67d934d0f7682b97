"""Accounting of saved memory: by hand on small graphs, and against other ways to count on real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gradviz
from gradviz.errors import FormatError
from gradviz.fold.folding import unfolded
from gradviz.graph import Graph, Leaf, Node, SavedTensor, Storage, TensorInfo
from gradviz.graph.amounts import held_bytes
from gradviz.memory.saved import By, Saved, memory_notes, saved
from tests.drawn import held_by_box
from tests.fold.saving import chain_of, random_saving, slot

ALL: tuple[By, ...] = ("op", "module", "line", "tensor")


# -- graphs made by hand ---------------------------------------------------------------------------------------------


def test_a_shared_storage_counts_once_for_whoever_saved_it_first() -> None:
    graph = chain_of(
        (slot(0), slot(1)), (slot(0),), storages=(Storage(0, 100, "activation"), Storage(1, 7, "activation"))
    )
    rows = saved(graph, "op").rows
    assert [(row.name, row.held) for row in rows] == [("Op1Backward0", 100), ("Op0Backward0", 7)]
    assert [row.cumulated for row in rows] == [100 / 107, 1.0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("by", ALL)
def test_rows_add_up_to_the_totals(seed: int, by: By) -> None:
    graph = random_saving(seed)
    found = saved(graph, by)
    used = {one.storage for node in graph.nodes for one in node.saved}
    by_hand = [graph.storages[i] for i in used if i is not None]
    assert sum(row.nbytes for row in found.rows) == found.totals.held_for_backward
    assert found.totals.held_for_backward == sum(one.nbytes or 0 for one in by_hand)
    assert sum(row.only_graph for row in found.rows) == found.totals.held_only_by_graph
    assert found.totals.held_only_by_graph == sum(
        one.nbytes or 0 for one in by_hand if one.kind in ("activation", "number")
    )
    assert sum(row.storages for row in found.rows) == found.totals.storages == len(by_hand)
    assert [row.held for row in found.rows] == sorted((row.held for row in found.rows), reverse=True)
    assert sum(row.share for row in found.rows) == pytest.approx(1) == pytest.approx(found.rows[-1].cumulated)


def test_what_top_cuts_is_one_row() -> None:
    found = saved(random_saving(1), "tensor")
    shown, others = found.top(3)
    assert others is not None and shown == found.rows[:3]
    assert sum(row.nbytes for row in shown) + others.nbytes == found.total.nbytes
    assert others.cumulated == pytest.approx(1)
    assert found.top(None) == found.top(0) == found.top(len(found.rows)) == (found.rows, None)


def test_the_default_rows_are_what_was_recorded() -> None:
    full = random_saving(2)
    without_lines = tuple(node._replace(source=None) for node in full.nodes)
    modules = Graph(without_lines, full.edges, storages=full.storages, scopes=full.scopes)
    ops = Graph(tuple(node._replace(scope=None) for node in without_lines), full.edges, storages=full.storages)
    assert [saved(graph).by for graph in (full, modules, ops)] == ["line", "module", "op"]


@pytest.mark.parametrize(
    ("by", "message"),
    [("line", "no source lines"), ("module", "no modules"), ("opp", "Did you mean op"), (3, "The valid ones are")],
)
def test_rows_that_cannot_be_made(by: By, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        saved(chain_of((slot(0),), storages=(Storage(0, 8, "activation"),)), by)


def test_parts_of_a_sparse_tensor_belong_to_its_slot() -> None:
    info, note = TensorInfo((9, 9), "float32", "cpu", "sparse_coo"), "words that say nothing of storage 0"
    sparse = slot(2)._replace(tensor=info, nbytes=None, note=note, parts=(1, 2))
    storages = (Storage(0, 5, "activation"), Storage(1, 48, "activation"), Storage(2, 12, "activation"))
    found = saved(chain_of((slot(0),), (sparse,), storages=storages), "op")
    assert [(row.name, row.held) for row in found.rows] == [("Op1Backward0", 60), ("Op0Backward0", 5)]
    assert found.totals.storages == 3
    graph = chain_of((slot(0),), (sparse,), storages=storages)
    assert sum(held_by_box(graph)) == sum(held_bytes(graph)) == found.totals.held_for_backward


def test_the_storage_of_a_leaf_is_not_saved_unless_a_slot_holds_it() -> None:
    graph = chain_of((slot(1),), storages=(Storage(0, 100, "parameter"), Storage(1, 5, "activation")))
    leaf = Leaf(0, ("w",), TensorInfo((25,), "float32", "cpu"), "parameter", storage=0)
    found = saved(Graph(graph.nodes, leaves=(leaf,), storages=graph.storages), "op")
    assert found.totals.held_for_backward == 5 and found.totals.parameters == 100


def test_states_are_counted() -> None:
    tensor = TensorInfo((2,), "float32", "cpu")
    slots = (
        SavedTensor("a", None, None, None, "freed"),
        SavedTensor("b", tensor, 0, "activation", "modified", 8, version=2),
        SavedTensor("c", tensor, 0, "activation", "modified", 8, version=2),
        SavedTensor("d", None, None, None, "packed", note="unpacked by torch.utils.checkpoint.f from a str"),
        SavedTensor("e", tensor, 1, "activation", "packed", 8),
        SavedTensor("h", None, None, None, "packed", packing="recompute"),
        SavedTensor("f", TensorInfo((2,), "float32", "cpu", "_mkldnn"), None, None, "live"),
        SavedTensor("g", tensor, 2, "activation", "live", 8),
    )
    graph = chain_of(
        slots, storages=(Storage(0, 8, "activation"), Storage(1, 80, "activation"), Storage(2, 0, "activation"))
    )
    totals = saved(graph, "op").totals
    assert (totals.freed_slots, totals.modified_slots, totals.modified_bytes) == (1, 2, 8)
    assert (totals.packed_slots, totals.packed_bytes, totals.packed_unknown) == (3, 80, 1)
    assert totals.recomputed_slots == 1
    assert (totals.slots, totals.storages, totals.without_storage) == (5, 3, 2)
    notes = " ".join(memory_notes(graph, totals))
    for word in ("freed", "modified in place", "no tensor", "computes them again", "no storage of their own"):
        assert word in notes


def test_gradients_to_come_are_those_that_are_missing() -> None:
    def leaf(node: int, shape: tuple[int, ...], dtype: str, has_grad: bool) -> Leaf:
        return Leaf(node, (), TensorInfo(shape, dtype, "cpu"), "parameter", has_grad)

    nodes = tuple(Node(i, "AccumulateGrad") for i in range(3))
    leaves = (leaf(0, (3, 4), "float32", False), leaf(1, (5,), "bfloat16", True), leaf(2, (5,), "complex64", False))
    totals = saved(Graph(nodes, leaves=leaves), "op").totals
    assert totals.gradients == 48 + 40
    assert totals.parameters == 48 + 10 + 40


def test_a_folded_graph_counts_as_its_original() -> None:
    graph = random_saving(3)
    folded = Graph(graph.nodes[:1], folding=unfolded(graph))
    assert saved(folded, "op") == saved(graph, "op")


# -- real graphs -----------------------------------------------------------------------------------------------------


def test_bytes_of_a_linear_layer_and_exp_by_hand() -> None:
    layer, x = nn.Linear(10, 20), torch.randn(64, 10)
    found = gradviz.saved(gradviz.walk(layer(x).exp().sum(), model=layer), "op")
    by_name = {row.name: row for row in found.rows}
    assert by_name["ExpBackward0"].kinds == {"activation": 64 * 20 * 4}
    assert by_name["AddmmBackward0"].kinds["input"] == 64 * 10 * 4
    assert found.totals.parameters == found.totals.gradients == (10 * 20 + 20) * 4
    assert found.totals.held_only_by_graph == 64 * 20 * 4


def test_after_backward_everything_is_freed() -> None:
    w = torch.randn(4, requires_grad=True)
    loss = w.exp().sum()
    loss.backward()
    found = gradviz.saved(gradviz.walk(loss))
    assert found.rows == () and found.totals.freed_slots == 1 and found.totals.gradients == 0
    assert "backward() has run" in found.notes[0]


Model = Callable[[], tuple[nn.Module, torch.Tensor]]


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    parts = (nn.Linear(6, 12), nn.BatchNorm1d(12), nn.GELU(), nn.Dropout(0.2), nn.Linear(12, 3), nn.Sigmoid())
    return nn.Sequential(*parts), torch.randn(16, 6)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layers = (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1) for _ in range(2))
    return nn.Sequential(*layers), torch.randn(2, 10, 32)


def convolutions() -> tuple[nn.Module, torch.Tensor]:
    parts = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3))
    return nn.Sequential(*parts), torch.randn(2, 3, 20, 20)


def packed_bytes(make: Model) -> int:
    """Bytes that a forward pass hands to the pack hook, each storage once, the model's own and its input left out."""
    torch.manual_seed(0)
    model, x = make()
    outside = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers(), x)}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(x).sum()
    assert loss.requires_grad
    return sum(storage.nbytes() for identity, storage in storages.items() if identity not in outside)


def walked(make: Model) -> Saved:
    torch.manual_seed(0)
    model, x = make()
    return gradviz.saved(gradviz.walk(model(x).sum(), model=model, params={"x": x}))


@pytest.mark.parametrize("make", [perceptron, transformer, convolutions])
def test_a_fake_run_has_the_bytes_of_a_real_one(make: Model) -> None:
    real = walked(make)
    with FakeTensorMode():
        fake = walked(make)
    assert fake.totals == real.totals
    assert [(row.name, row.nbytes) for row in fake.rows] == [(row.name, row.nbytes) for row in real.rows]
