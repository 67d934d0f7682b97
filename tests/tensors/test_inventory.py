"""The facts of tensors, and that reading them changes nothing."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from gradviz.tensors import TensorFacts, inventory


def by_name(**variables: object) -> dict[str, TensorFacts]:
    return {" = ".join(one.names): one for one in inventory([variables])}


def test_strides_offsets_and_shared_storages() -> None:
    x = torch.arange(48).view(6, 8)
    found = by_name(x=x, y=x[1:5:2, 1:4], copy=x[[0, 1]], other=torch.ones(3))
    y = found["y"]
    assert (y.stride, y.offset, y.tensor.shape) == ((16, 1), 9, (2, 3))
    assert found["x"].storage == y.storage == "A" and found["copy"].storage == found["other"].storage == ""
    assert y.view and y.storage_bytes == 48 * 8


def test_tensors_over_one_array_share_their_memory() -> None:
    array = np.ones(4, dtype=np.float32)
    found = by_name(x=torch.from_numpy(array), y=torch.from_numpy(array), copy=torch.tensor(array))
    assert [one.storage for one in found.values()] == ["A", "A", ""]


def test_what_backward_left() -> None:
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    a, b = x + w, w + 1
    b.retain_grad()
    y = a * b
    y.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # reading .grad of a non-leaf would warn
        found = by_name(x=x, w=w, a=a, b=b, y=y)
    assert [one.is_leaf for one in found.values()] == [True, True, False, False, False]
    assert [one.grad.value if one.grad else None for one in found.values()] == [2, 5, None, 3, None]
    assert [one.grad_fn for one in found.values()] == ["", "", "AddBackward0", "AddBackward0", "MulBackward0"]
    assert [one.retains_grad for one in found.values()] == [False, False, False, True, False]


def test_a_view_modified_in_place_is_not_asked() -> None:
    base = torch.ones(4, requires_grad=True) * 1
    view = base[1:3]
    base.mul_(2)
    before = torch._C._autograd._get_sequence_nr()
    found = by_name(base=base, view=view)
    assert torch._C._autograd._get_sequence_nr() == before
    assert found["view"].grad_fn is None and found["view"].is_leaf is None and found["view"].base == ("base",)
    assert found["base"].version == 1
    first, _ = (base * 1).split(2)
    first._base.add_(1)  # type: ignore[union-attr]  # now torch refuses to tell grad_fn and is_leaf
    assert by_name(first=first)["first"].grad_fn is None


def test_names_are_found_in_modules_and_containers_once() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    first = net[0].weight
    found = by_name(net=net, layer=net[0], first=first, both=[first, torch.ones(1)], again=first, _hidden=torch.ones(1))
    assert next(iter(found)) == "first = again"
    assert found["net.0.bias"].kind == "parameter" and found["net.1.running_mean"].kind == "buffer"
    assert "both[1]" in found and "both[0]" not in found and "_hidden" not in found
    assert len(found) == 2 + 1 + 2 + 3


def test_odd_tensors() -> None:
    with torch.inference_mode():
        frozen = torch.ones(2)
    sparse = torch.eye(2).to_sparse()
    w = torch.ones(2, device="meta", requires_grad=True)
    w.grad = torch.ones(2, device="meta")
    found = by_name(frozen=frozen, sparse=sparse, w=w)
    assert found["frozen"].version is None
    assert found["sparse"].stride is None and found["sparse"].tensor.layout == "sparse_coo"
    assert found["w"].grad is not None and found["w"].grad.norm is None
