"""What a graph knows of tensors without gradient: what ops were given and saved, by the names that the user's code has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gradviz
from gradviz.graph import Graph
from gradviz.graph.files import dump, loads
from tests.walker.graphs import needs_raw

pytestmark = needs_raw


def found(graph: Graph) -> dict[str, tuple[object, int]]:
    """Shape, and the number of ops that saved it, by name."""
    return {" = ".join(data.names): (data.tensor.shape, len(data.nodes)) for data in graph.data}


HAS_COLUMNS = sys.version_info >= (3, 11)  # else several calls of one line cannot be told apart


def test_each_tensor_is_one_though_they_share_memory() -> None:
    net = nn.Linear(8, 4)
    anchor, positive, negative = torch.randn(3, 5, 8)
    loss = F.triplet_margin_loss(net(anchor), net(positive), net(negative))
    assert found(gradviz.walk(loss)) == dict.fromkeys(("anchor", "positive", "negative"), ((5, 8), 1))


def test_views_count_for_the_tensor_that_has_a_name() -> None:
    table, cell, head = nn.Embedding(9, 4), nn.GRUCell(4, 4), nn.Linear(4, 9)
    tokens, target = torch.randint(9, (3, 5)), torch.randint(9, (3,))
    state = None
    for t in range(5):
        state = cell(table(tokens[:, t]), state)
    graph = gradviz.walk(F.cross_entropy(head(state), target))
    assert found(graph) == {"tokens": ((3, 5), 5), "target": ((3,), 1)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.first(images.flatten(1))
        if mask is not None:
            h = h.masked_fill(mask, 0.0)
        return self.last(F.dropout(h))  # type: ignore[no-any-return]


def test_data_that_nobody_holds_is_called_as_the_parameter_of_the_module_or_as_its_code() -> None:
    net = Net()
    with gradviz.record() as recording:
        loss = F.mse_loss(net(torch.randn(3, 2, 2), mask=torch.ones(3, 4) == 0), torch.zeros(3, 2))
    graph = recording.graph(loss)
    assert found(graph) == {
        "images": ((3, 2, 2), 0),
        "images.flatten(1)": ((3, 4), 1),
        "mask": ((3, 4), 1),
        ("torch.zeros(3, 2)" if HAS_COLUMNS else "target"): ((3, 2), 1),
    }
    assert [graph.data[i].names for data in graph.data for i in data.of] == [("images",)]


def test_a_rollout_does_not_take_the_names_of_data_away() -> None:
    net = Net()
    observations = [torch.randn(1, 2, 2) for _ in range(1100)]  # more than are kept
    with gradviz.record() as recording:
        loss = net(torch.randn(3, 2, 2)).sum()
        with torch.no_grad():
            for observation in observations:
                net(observation)
    assert found(recording.graph(loss)) == {"images": ((3, 2, 2), 0), "images.flatten(1)": ((3, 4), 1)}


def test_what_ops_made_themselves_is_no_data() -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.MaxPool1d(2)), torch.randn(6, 4)
    with gradviz.record() as recording:
        top = net(x[None].squeeze(0)).topk(1).values.sum()
    assert list(found(recording.graph(top))) == ["x[None].squeeze(0)" if HAS_COLUMNS else "x"]


def test_a_mask_that_cross_entropy_made_of_the_target_is_no_data() -> None:
    net, x, y = nn.Linear(4, 3), torch.randn(5, 4), torch.tensor([0, 2, 1, 0, 2])
    with gradviz.record() as recording:
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
    for graph in (gradviz.walk(loss), recording.graph(loss)):
        assert list(found(graph)) == ["y", "x"]


def test_a_tensor_that_requires_grad_is_a_leaf_and_no_data() -> None:
    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    assert found(gradviz.walk((x[1:] * w[1:]).sum())) == {"w": ((3,), 1)}


def test_a_file_keeps_it() -> None:
    net, images = Net(), torch.randn(3, 2, 2)
    graph = gradviz.walk(net(images), model=net)
    assert loads("".join(dump(graph))) == graph and graph.data


def test_nothing_is_kept_alive() -> None:
    import weakref

    net = Net()
    with gradviz.record() as recording:
        images = torch.randn(3, 2, 2)
        loss = net(images).sum()
        graph = recording.graph(loss)
        gone = weakref.ref(images)
        del images, loss
        assert gone() is None and graph.data


def test_operands_that_the_code_names_are_data(tmp_path: Path) -> None:
    """Noise that an op saved, a mask, and operands of sums, also one that the script no longer
    holds; numbers and what dropout drew are none.
    """
    lines = """
import torch

def noisy(h):
    eps = torch.randn_like(h)
    return h + eps * h

layer = torch.nn.Linear(4, 4)
x, mask, shift, gone, scale = torch.ones(3, 4), torch.ones(3, 4), torch.ones(3, 4), torch.ones(3, 4), 2.0
h = layer(x) * mask + shift
h = torch.nn.functional.dropout(noisy(h), 0.5) * scale + gone
gone = torch.zeros(3, 4)
graph = recording.graph(h.sum())
"""
    file = tmp_path / "train.py"
    file.write_text(lines)
    with gradviz.record() as recording:
        variables: dict[str, Any] = {"recording": recording}
        exec(compile(lines, str(file), "exec"), variables)
    data = found(variables["graph"])
    assert set(data) == {"x", "mask", "shift", "eps", "gone"} and data["gone"] == (None, 1)


def test_masks_that_attention_is_given_are_drawn_at_what_takes_them(tmp_path: Path) -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    layer = nn.TransformerDecoderLayer(4, 2, 8, batch_first=True)
    x, causal = torch.randn(2, 3, 4), nn.Transformer.generate_square_subsequent_mask(3)
    pad = torch.tensor([[False, False, True], [False, False, False]])
    with gradviz.record() as recording:
        y, _ = attention(x, x, x, key_padding_mask=pad, attn_mask=causal > 0)
        z = layer(y, x, tgt_mask=causal)
    graph = recording.graph(z)
    takers = {data.names[0]: [graph.nodes[node].op for node in data.nodes] for data in graph.data}
    assert takers["pad"] == ["BaddbmmBackward0"] and takers["causal"] == ["AddBackward0"]


def test_a_mask_that_was_turned_into_numbers_counts_as_an_input() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    pad = torch.tensor([[False, False, True], [False, False, False]])
    with gradviz.record() as recording:
        loss = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)(
            torch.randn(2, 3, 4), src_key_padding_mask=pad
        )
    graph = recording.graph(loss)
    masked = [node for node in graph.nodes if node.op == "AddBackward0" and node.none_inputs]
    scores = [node for node in masked if node.outputs[0].shape == (2, 2, 3, 3)]
    assert [node.numbers for node in scores] == [0]
