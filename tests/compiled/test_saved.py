"""What a compiled function keeps, against the memory that it really holds, over models, backends and sizes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradviz
from gradviz.graph import Graph
from tests.compiled.models import Block, held
from tests.walker.graphs import needs_raw


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)  # inductor raises it
    torch._dynamo.reset()


class Recomputing(nn.Module):
    """A checkpoint inside what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.body, x, use_reentrant=False).sin()  # type: ignore[no-any-return]


class Broken(nn.Module):
    """A graph break in the middle: two regions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x).tanh()
        torch._dynamo.graph_break()
        return self.second(h * h)  # type: ignore[no-any-return]


def words(*sizes: int) -> torch.Tensor:
    return torch.arange(24).reshape(sizes) % 8


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "block": (Block, lambda: torch.randn(3, 8)),
    "checkpoint": (Recomputing, lambda: torch.randn(3, 8)),
    "graph break": (Broken, lambda: torch.randn(3, 8)),
    "views": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Unflatten(1, (2, 4)), nn.Softmax(1)),
        lambda: torch.randn(3, 8),
    ),
    "norms": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU()), lambda: torch.randn(2, 3, 8)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), lambda: torch.randn(2, 5, 8)),
    "words": (lambda: nn.Sequential(nn.Embedding(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)), lambda: words(4, 6)),
}


def kept(graph: Graph) -> int:
    """Bytes of the storages that the nodes of compiled functions save, each once."""
    slots = [slot for node in graph.nodes if "compiled" in node.flags for slot in node.saved]
    return sum(graph.storages[i].nbytes or 0 for i in {slot.storage for slot in slots} if i is not None)


INDUCTOR = [pytest.mark.slow, pytest.mark.skipif(shutil.which("gcc") is None, reason="inductor needs a C++ compiler")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "dynamic", "name"),
    [
        *(("aot_eager", False, name) for name in MODELS),
        *(pytest.param("aot_eager", True, name, marks=pytest.mark.long) for name in ("block", "words")),
        *(("aot_eager_decomp_partition", False, name) for name in MODELS),  # inductor's choice of what is saved
        pytest.param("inductor", False, "norms", marks=[*INDUCTOR, pytest.mark.long]),
        pytest.param("inductor", False, "graph break", marks=[*INDUCTOR, pytest.mark.long]),
    ],
)
def test_every_storage_that_is_held_is_counted_once(name: str, backend: str, dynamic: bool) -> None:
    make, sample = MODELS[name]
    net = make()
    loss = torch.compile(net, backend=backend, dynamic=dynamic)(sample()).square().sum()
    graph = gradviz.walk(loss, model=net)
    assert sum("custom" in node.flags for node in graph.nodes) == (2 if name == "graph break" else 1)
    assert kept(graph) == sum(held(loss).values()) > 0


@pytest.mark.parametrize("budget", [1.0, 0.0])
@needs_raw
def test_under_autocast_the_casts_that_are_kept_are_counted(budget: float) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch._functorch.config.patch(activation_memory_budget=budget):
        loss = torch.compile(Block(), backend="aot_eager")(torch.randn(3, 8)).float().sum()
    graph = gradviz.walk(loss)
    assert kept(graph) == sum(held(loss).values()) > 0
