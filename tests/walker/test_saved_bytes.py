"""The bytes of saved tensors, against what saved-tensor hooks count."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import gradviz
from tests.walker.graphs import needs_raw


class Gpt(torch.nn.Module):
    """Two small blocks, with Python numbers multiplied in."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        self.blocks = torch.nn.ModuleList(
            torch.nn.ModuleList([torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)]) for _ in "ab"
        )
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        h = self.embedding(index) * 8**0.5
        for attention, project in self.blocks:  # type: ignore[misc]
            q, k, v = attention(self.norm(h)).chunk(3, -1)
            h = h + 0.5 * project(torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1) @ v)
            h = h + torch.nn.functional.gelu(h) * 2
        return h @ self.embedding.weight.t()


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 3, 3, padding=1),
            torch.nn.BatchNorm2d(3),
            torch.nn.ReLU(inplace=True),
            torch.nn.Conv2d(3, 3, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.nn.functional.max_pool2d(torch.relu(self.layers(x) + x), 2)
        return made


N = torch.nn
MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "residual": lambda: (Residual(), torch.randn(2, 3, 8, 8)),
    "encoder": lambda: (
        N.TransformerEncoder(N.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False),
        torch.randn(2, 5, 8),
    ),
    "lstm": lambda: (N.LSTM(4, 6, num_layers=2, bidirectional=True), torch.randn(3, 2, 4)),
    "gpt": lambda: (Gpt(), torch.arange(10).view(2, 5)),
}


@pytest.mark.parametrize("name", MODELS)
@needs_raw
def test_activation_bytes_are_what_the_hooks_count(name: str) -> None:
    torch.manual_seed(0)
    model, given = MODELS[name]()
    counted: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        counted[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        alive.append(tensor.detach())
        return tensor

    def run() -> torch.Tensor:
        made = model(given)
        loss: torch.Tensor = (made[0] if isinstance(made, tuple) else made).pow(2).sum()
        return loss

    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hooked = run()
    owned = [*model.parameters(), *model.buffers(), given]
    for tensor in owned:
        counted.pop(tensor.untyped_storage()._cdata, None)
    torch.manual_seed(1)
    graph = gradviz.walk(run(), model=model)
    storages = [one for one in graph.storages if one.kind in ("activation", "output")]
    used = {one.storage for node in graph.nodes for one in node.saved}
    assert {one.id for one in storages} <= used
    assert len(storages) == len(counted)
    assert sum(one.nbytes or 0 for one in storages) == sum(counted.values()) > 0
    numbers = [one for one in graph.storages if one.kind == "number"]
    assert bool(numbers) == (name == "gpt") and all(one.nbytes == 8 for one in numbers)
    del hooked
