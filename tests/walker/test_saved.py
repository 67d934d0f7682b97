"""Saved tensors: every state told, no hook run, nothing recomputed, nothing kept, and the bytes as the hooks count them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import gradviz
from gradviz.graph import Graph, SavedTensor
from gradviz.walker import private
from tests.walker.graphs import leaf, needs_raw, only

pytestmark = pytest.mark.skipif(not private.HAS_RAW_DATA, reason="this torch cannot show saved tensors without hooks")
needs_unpack = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack"),
    reason="this torch does not tell which one of several saved tensors was modified",
)


def slots(graph: Graph, op: str) -> dict[str, SavedTensor]:
    return {one.slot: one for one in only(graph, op).saved}


def states(graph: Graph) -> set[str]:
    return {one.state for node in graph.nodes for one in node.saved}


# -- what a slot tells -----------------------------------------------------------------------------------------------------


def test_slots_tell_leaves_results_and_views() -> None:
    x = leaf(2, 3)
    w = leaf(4, 3)
    y = torch.tanh(x @ w.t())
    graph = gradviz.walk(y)
    mm = slots(graph, "MmBackward0")
    assert {graph.leaves[0].names, graph.leaves[1].names} == {("x",), ("w",)}
    x_leaf = next(found.node for found in graph.leaves if found.names == ("x",))
    assert (mm["self"].leaf, mm["self"].kind, mm["self"].view, mm["self"].nbytes) == (x_leaf, "input", False, 24)
    assert (mm["mat2"].leaf, mm["mat2"].kind, mm["mat2"].view) == (None, "input", True)
    result = slots(graph, "TanhBackward0")["result"]
    assert (result.kind, result.state, result.version) == ("output", "live", 0)  # the caller holds it as `y`


def test_a_slice_pins_its_whole_storage() -> None:
    big = torch.ones(1000)
    graph = gradviz.walk(leaf(4) * big[:4])
    other = slots(graph, "MulBackward0")["other"]
    assert other.storage is not None
    assert (other.nbytes, graph.storages[other.storage].nbytes, other.view) == (16, 4000, True)


def test_a_slot_that_holds_nothing_is_an_attribute() -> None:
    node = only(gradviz.walk(leaf() * torch.ones(3)), "MulBackward0")
    assert node.attributes["other"] is None if "other" in node.attributes else node.attributes["self"] is None
    assert len(node.saved) == 1


@pytest.mark.parametrize("number", [2.5, 3, 2j, True, 0])
def test_python_numbers_are_told_from_tensors(number: complex) -> None:
    graph = gradviz.walk(leaf() * number)
    assert slots(graph, "MulBackward0")["other"].kind == ("activation" if number is True else "number")
    (node,) = (node for node in graph.nodes if node.op == "MulBackward0")
    assert node.attributes.get("other") == (None if number is True else number)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex128, torch.float32])
def test_tensors_that_look_like_numbers_are_none(dtype: torch.dtype) -> None:
    graph = gradviz.walk(leaf() * torch.ones((), dtype=dtype))
    assert slots(graph, "MulBackward0")["other"].kind == "activation"


def test_attributes_that_compare_equal_stay_themselves() -> None:
    y = torch.add(torch.add(leaf(), leaf(), alpha=1), leaf(), alpha=1.0)
    found = [type(node.attributes["alpha"]) for node in gradviz.walk(y).nodes if node.op == "AddBackward0"]
    assert found == [float, int]


# -- states ------------------------------------------------------------------------------------------------------------------


def test_freed_by_backward() -> None:
    x = leaf(4, 4)
    index = torch.tensor([0, 1])
    y = (torch.tanh(x)[index] * x.sum()).sum()
    assert states(gradviz.walk(y)) == {"live"}
    y.backward()
    graph = gradviz.walk(y)
    assert states(graph) == {"freed"}
    for op in ("TanhBackward0", "IndexBackward0", "MulBackward0"):
        assert only(graph, op).flags == ("freed",)
    assert [one.slot for one in only(graph, "IndexBackward0").saved] == ["indices"]


class Keep(torch.autograd.Function):
    """Saves its input and a constant, its own output too when asked, and puts tensors on ctx."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, constant: torch.Tensor, own: bool = False) -> torch.Tensor:
        y = x * constant
        ctx.save_for_backward(x, constant, *((y,) if own else ()))
        ctx.extra = torch.zeros(5)
        ctx.several = [torch.zeros(6), None]
        ctx.named = {"a": torch.zeros(7)}
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradient * ctx.saved_tensors[1], None, None


def test_custom_functions_tell_saved_tensors_and_tensors_on_ctx() -> None:
    y = Keep.apply(leaf(), torch.ones(3))
    found = slots(gradviz.walk(y), "KeepBackward")
    assert set(found) == {"saved_tensors[0]", "saved_tensors[1]", "ctx.extra", "ctx.several[0]", "ctx.named[0]"}
    assert found["ctx.extra"].nbytes == 20 and {one.state for one in found.values()} == {"live"}
    y.sum().backward()
    found = slots(gradviz.walk(y), "KeepBackward")
    assert found["saved_tensors"].state == "freed" and found["ctx.extra"].state == "live"  # ctx keeps its own


def test_modified_in_place() -> None:
    x, w = leaf(), torch.ones(3)
    y = x * w
    w.add_(1)
    graph = gradviz.walk(y)
    assert only(graph, "MulBackward0").flags == ("modified",)
    assert (slots(graph, "MulBackward0")["other"].state, slots(graph, "MulBackward0")["other"].version) == (
        "modified",
        1,
    )


def test_modified_own_result() -> None:
    y = torch.tanh(leaf())
    z = y * 1
    y.add_(1)
    assert slots(gradviz.walk(z), "TanhBackward0")["result"].state == "modified"


@needs_unpack
def test_modified_in_a_list_of_tensors() -> None:
    first, second = torch.tensor([0, 1]), torch.tensor([1, 2])
    y = leaf(3, 3)[first, second]
    second.add_(-1)
    found = slots(gradviz.walk(y), "IndexBackward0")
    assert (found["indices[0]"].state, found["indices[1]"].state) == ("live", "modified")


@needs_unpack
def test_modified_in_a_custom_function() -> None:
    constant = torch.ones(3)
    y = Keep.apply(leaf(), constant)
    constant.add_(1)
    found = slots(gradviz.walk(y), "KeepBackward")
    assert (found["saved_tensors[0]"].state, found["saved_tensors[1]"].state) == ("live", "modified")


def test_a_modified_result_that_its_custom_function_saved_is_unknown() -> None:
    y = Keep.apply(leaf(), torch.ones(3), True)
    z = y + 0
    y.add_(1)
    found = slots(gradviz.walk(z), "KeepBackward")["saved_tensors[2]"]
    assert found.state == "unknown" and "does not tell" in found.note


def test_a_custom_function_that_clears_on_access_keeps_what_it_saved() -> None:
    class Clearing(Keep):
        clear_saved_tensors_on_access = True

    y = Clearing.apply(leaf(), torch.ones(3))
    gradviz.walk(y)
    y.sum().backward()  # would raise if the walk had read `saved_tensors`


# -- no side effects -----------------------------------------------------------------------------------------------------------


class Counting:
    """Hooks that pack to a file and count their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.packed, self.unpacked = folder, 0, 0

    def pack(self, tensor: torch.Tensor) -> Path:
        self.packed += 1
        path = self.folder / f"{self.packed}.pt"
        torch.save(tensor, path)
        return path

    def unpack(self, path: Path) -> torch.Tensor:
        self.unpacked += 1
        loaded: torch.Tensor = torch.load(path)
        return loaded


def test_hooks_that_pack_to_disk_do_not_run(tmp_path: Path) -> None:
    hooks = Counting(tmp_path)
    x = leaf(4, 4)
    with torch.autograd.graph.saved_tensors_hooks(hooks.pack, hooks.unpack):
        y = Keep.apply(torch.tanh(x)[torch.tensor([0, 1])] * x[:2], torch.ones(2, 4)).sum()
    packed = hooks.packed
    graph = gradviz.walk(y)
    assert (hooks.packed, hooks.unpacked) == (packed, 0) and packed >= 5
    found = slots(graph, "TanhBackward0")["result"]
    assert (found.state, found.tensor, found.storage) == ("packed", None, None)
    assert f"{__name__}.Counting.unpack" in found.note and "pathlib" in found.note and found.packing == "hook"
    assert only(graph, "TanhBackward0").flags == ("packed",)
    assert "packed" in only(graph, "KeepBackward").flags and "packed" in only(graph, "IndexBackward0").flags
    y.backward()
    assert hooks.unpacked > 0
    assert "freed" in states(gradviz.walk(y))


def test_a_packed_tensor_tells_its_facts() -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        y = torch.tanh(leaf(8))
    found = slots(gradviz.walk(y), "TanhBackward0")["result"]
    assert found.tensor is not None and found.state == "packed"
    assert (found.tensor.dtype, found.nbytes, found.kind) == ("float16", 16, "activation")
    assert "torch.Tensor" in found.note


def test_save_on_cpu_is_read_without_copying_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.autograd.graph.save_on_cpu():
        y = torch.tanh(leaf(8))
    monkeypatch.setattr(torch.Tensor, "to", lambda *_, **__: pytest.fail("unpacked"))
    found = slots(gradviz.walk(y), "TanhBackward0")["result"]
    assert found.tensor is not None and found.tensor.device == "cpu"
    assert (found.state, found.nbytes) == ("packed", 32) and "save_on_cpu" in found.note
    assert found.packing == "offload"


def test_a_hook_is_torchs_own_by_where_it_is_defined_not_by_its_name() -> None:
    def save_on_cpu(packed: Any) -> Any:
        return packed[0]

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor,), save_on_cpu):
        y = torch.tanh(leaf(8))
    found = slots(gradviz.walk(y), "TanhBackward0")["result"]
    assert "save_on_cpu" in found.note and found.packing == "hook"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_not_recomputed(reentrant: bool) -> None:
    runs = 0

    def block(t: torch.Tensor) -> torch.Tensor:
        nonlocal runs
        runs += 1
        return torch.tanh(t * 2).sigmoid()

    y = checkpoint(block, leaf(), use_reentrant=reentrant).sum()
    graph = gradviz.walk(y)
    assert runs == 1
    if not reentrant:
        assert "packed" in states(graph)
        found = slots(graph, "TanhBackward0")["result"]
        assert "checkpoint" in found.note and found.packing == "recompute"
    y.backward()
    assert runs == 2


@needs_raw
def test_tensors_over_one_array_are_one_storage() -> None:
    array = np.ones((4, 4), dtype=np.float32)
    x, y, part = torch.from_numpy(array), torch.from_numpy(array), torch.from_numpy(array[1:])
    graph = gradviz.walk(leaf(4, 4) * x + leaf(4, 4) * y + (leaf(3, 4) * part).sum())
    inputs = [storage for storage in graph.storages if "x" in storage.names or "part" in storage.names]
    assert [storage.nbytes for storage in inputs] == [64, 48]
    assert len({saved.storage for node in graph.nodes for saved in node.saved}) == 2


def test_copy_on_write_tensors_stay_lazy() -> None:
    original = torch.ones(4)
    lazy = torch._lazy_clone(original)
    y = leaf(4) * lazy
    assert torch._C._is_cow_tensor(lazy)
    gradviz.walk(y)
    assert torch._C._is_cow_tensor(lazy)


@pytest.mark.slow
def test_nothing_is_kept_while_the_graph_object_lives() -> None:
    x = leaf(4)
    y = torch.exp(torch.tanh(x * 2.5)) * torch.ones(4)
    storages: list[Any] = []
    nodes = [y.grad_fn]
    for node in nodes:
        for name in dir(node):
            if name.startswith("_raw_saved_") and (tensor := getattr(node, name).data) is not None:
                storages.append(weakref.ref(tensor.untyped_storage()))
        nodes += [child for child, _ in node.next_functions if child is not None]  # type: ignore[union-attr]
    del node, tensor, nodes
    graph = gradviz.walk(y)
    assert len(storages) == 4 and all(ref() is not None for ref in storages)
    del y, x
    gc.collect()
    assert all(ref() is None for ref in storages)
    assert graph.nodes and graph.storages


# -- odd tensors -----------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_number_all_their_storages(layout: torch.layout) -> None:
    matrix = torch.eye(3).to_sparse(layout=layout)
    graph = gradviz.walk(torch.sparse.mm(matrix, leaf(3, 2)))
    found = next(
        one for node in graph.nodes for one in node.saved if one.tensor and one.tensor.layout.startswith("sparse")
    )
    assert found.storage is not None and graph.storages[found.storage].nbytes == 12  # three values
    assert f"values in storage {found.storage}" in found.note and "ind" in found.note
    assert len(found.storages) == len(found.parts) == (2 if layout is torch.sparse_coo else 3)
    assert found.storages[0] == found.parts[-1] == found.storage


class Two(torch.Tensor):
    """A wrapper around two tensors."""

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Two:
        made: Two = torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, requires_grad=a.requires_grad)
        return made

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def run(part: str) -> Any:
            inner = torch.utils._pytree.tree_map_only(Two, lambda two: getattr(two, part), (args, kwargs or {}))
            return func(*inner[0], **inner[1])

        return Two(run("a"), run("b"))


def test_a_wrapper_of_two_tensors_names_both_storages() -> None:
    y = torch.tanh(Two(torch.ones(3, requires_grad=True), torch.ones(3)))
    graph = gradviz.walk(y)
    found = slots(graph, "TanhBackward0")["result"]
    assert "a in storage" in found.note and "b in storage" in found.note
    assert sorted(one.nbytes or 0 for one in graph.storages)[-2:] == [12, 12]


@pytest.mark.filterwarnings("ignore")
def test_quantised_and_nested_tensors() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True)
    found = slots(gradviz.walk(torch.tanh(nested)), "TanhBackward0")["result"]
    assert found.tensor is not None and found.tensor.layout == "jagged" and "values in storage" in found.note
    strided = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], requires_grad=True)
    found = slots(gradviz.walk(torch.tanh(strided)), "TanhBackward0")["result"]
    assert found.tensor is not None and (found.tensor.layout, found.tensor.shape) == ("nested", None)
    weight = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    found = slots(gradviz.walk(Keep.apply(leaf(), torch.ones(3)) * weight.dequantize()), "KeepBackward")["ctx.extra"]
    assert found.state == "live"
