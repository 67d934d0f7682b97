"""Checkpoint advice: the bookkeeping on graphs made by hand, and what wrapping really frees."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import gradviz
from gradviz.graph import Edge, Graph, Node, SavedTensor, Scope, Storage, StorageKind, TensorInfo
from gradviz.memory.checkpoint import checkpoint_plan
from gradviz.memory.freed import Checkpointed, ModuleCosts
from gradviz.memory.saved import saved

Saving = tuple[str, int]
"""The name of a slot and its storage."""


def stack(*saving: tuple[int | None, tuple[Saving, ...]], kinds: dict[int, StorageKind] | None = None) -> Graph:
    """Ops in a row, given in forward order as (scope, slots); every tensor has 100 bytes, as every storage has."""
    info = TensorInfo((25,), "float32", "cpu")
    count = len(saving)
    kinds = kinds or {}
    nodes = []
    for i, (scope, slots) in enumerate(reversed(saving)):
        held = tuple(
            SavedTensor(name, info, storage, kinds.get(storage, "activation"), "live", 100) for name, storage in slots
        )
        nodes.append(Node(i, "ExpBackward0", (info,), count - i, scope, saved=held))
    number = 1 + max(storage for _, slots in saving for _, storage in slots)
    storages = tuple(Storage(i, 100, kinds.get(i, "activation")) for i in range(number))
    scopes = (Scope("", "Net", 1, None), Scope("a", "Half", 1, 0), Scope("b", "Half", 1, 0), Scope("b.c", "Part", 1, 2))
    return Graph(tuple(nodes), tuple(Edge(i, i + 1, 0, 0) for i in range(count - 1)), storages=storages, scopes=scopes)


def wrapped(graph: Graph, *paths: str) -> Checkpointed:
    """The bookkeeping for these modules."""
    return Checkpointed(ModuleCosts(graph), paths)


def test_a_wrapped_module_keeps_its_input_and_frees_what_only_it_saved() -> None:
    graph = stack((0, (("result", 0),)), (1, (("x", 1),)), (1, (("y", 2),)), (1, (("z", 3),)))
    state = wrapped(graph, "a")
    assert (state.held, state.ops, ModuleCosts(graph).again("a")) == (100, 3, 300)
    assert state.peak == 400  # it all comes back at once


def test_an_input_that_nobody_saved_is_held_by_the_checkpoint() -> None:
    graph = stack((0, (("unknown", 0),)), (1, (("x", 1), ("y", 2), ("z", 3))))
    assert wrapped(graph, "a").held == 100 + 100  # storage 0, and the tensor that comes in


def test_what_crosses_between_wrapped_modules_stays() -> None:
    shared = ("w", 7)
    graph = stack(
        (0, (("unknown", 0),)), (1, (("x", 1), ("y", 2), ("z", 3), shared)), (2, (("x", 4), ("y", 5), ("z", 6), shared))
    )
    assert wrapped(graph).held == 800
    assert wrapped(graph, "a").held == 800 - 300 + 100  # the shared one is still saved in b; a's input comes on top
    assert wrapped(graph, "a", "b").held == 100 + 100 + 2 * 100  # storage 0, the shared one, the inputs of both


def test_what_the_caller_holds_is_not_freed() -> None:
    graph = stack((0, (("result", 0),)), (1, (("x", 1), ("y", 2))), kinds={1: "output"})
    assert wrapped(graph, "a").held == 200


def test_backward_has_let_go_of_later_calls_when_it_comes_to_earlier_ones() -> None:
    half = tuple((f"x{i}", i) for i in range(1, 6))
    other = tuple((f"x{i}", i) for i in range(6, 11))
    graph = stack((0, (("result", 0),)), (1, half), (0, (("result", 11),)), (2, other), (0, (("result", 12),)))
    state = wrapped(graph, "a", "b")
    assert state.held == 300
    assert state.peak == 200 + 500  # while inside b: its input and the one before a are held, the last result is gone


def test_an_outer_module_takes_the_place_of_inner_ones() -> None:
    graph = stack((0, (("result", 0),)), (3, (("x", 1), ("y", 2))), (2, (("p", 3), ("q", 4))))
    state = wrapped(graph, "b.c", "b")
    assert state.held == wrapped(graph, "b").held == 100
    assert state.ops == wrapped(graph, "b").ops == 2
    assert wrapped(graph, "b", "b.c").held == 100


# -- what wrapping really does ---------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Self-attention, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(x).chunk(3, -1)
        weights: torch.Tensor = (query @ key.transpose(-2, -1) / 8).softmax(-1)
        result: torch.Tensor = self.output(weights @ value)
        return result


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        result: torch.Tensor = x + self.feed_forward(self.norm2(x))
        return result


class GPT(nn.Module):
    def __init__(self, layers: int = 6, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(self.norm(x)).logsumexp(-1).mean()
        return result


class Made(TorchDispatchMode):
    """Remembers every storage that is made, without keeping it."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return result

    def alive(self, *outside: torch.Tensor) -> int:
        """Bytes of those that still exist, the ones of the tensors given left out."""
        known = {tensor.untyped_storage()._cdata for tensor in outside}
        return sum(
            size for made, (storage, size) in self._storages.items() if made not in known and not storage.expired()
        )


def held_after_forward(model: nn.Module, tokens: torch.Tensor) -> int:
    """Bytes that exist after a forward pass and did not before, counted without looking at the graph."""
    with Made() as made:
        loss = model(tokens)
    gc.collect()
    return made.alive(*model.parameters(), tokens, loss)


def gradients(model: nn.Module, tokens: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of every parameter."""
    return list(torch.autograd.grad(model(tokens), list(model.parameters())))


@contextmanager
def checkpointed(model: nn.Module, paths: Iterable[str]) -> Iterator[None]:
    """The modules at these paths run in checkpoints inside the block."""
    modules = [model.get_submodule(path.removeprefix("model.")) for path in paths]
    for module in modules:
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)
    yield
    for module in modules:
        del module.forward


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.4, *(pytest.param(part, marks=pytest.mark.long) for part in (0.9, 0.6, 0.25))])
def test_wrapping_frees_what_was_foretold(part: float) -> None:
    torch.manual_seed(0)
    model, tokens = GPT(), torch.randint(100, (4, 48))
    with gradviz.record() as recording:
        loss = model(tokens)
    graph = recording.graph(loss, model=model, params={"tokens": tokens})
    del loss
    held = saved(graph).total.held
    advice = checkpoint_plan(graph, int(held * part))
    outside = tokens.untyped_storage().nbytes()
    assert advice.before == held == pytest.approx(held_after_forward(model, tokens) + outside, rel=0.01)
    assert advice.steps and advice.fits
    before = gradients(model, tokens)
    with checkpointed(model, (step.path for step in advice.steps)):
        assert all(map(torch.equal, before, gradients(model, tokens)))
        measured = held_after_forward(model, tokens) + outside
        wrapped_graph = gradviz.walk(model(tokens), model=model, params={"tokens": tokens})
    assert saved(wrapped_graph).total.held == pytest.approx(measured, rel=0.01)
    assert measured == pytest.approx(advice.held, rel=0.01)
    assert advice.held == advice.before - sum(step.freed for step in advice.steps)


@pytest.mark.slow
@pytest.mark.long
def test_each_module_frees_what_its_row_says() -> None:
    torch.manual_seed(0)
    model, tokens = GPT(layers=1), torch.randint(100, (4, 48))
    with gradviz.record() as recording:
        loss = model(tokens)
    rows = saved(recording.graph(loss, model=model, params={"tokens": tokens}), "module").rows
    del loss
    held = held_after_forward(model, tokens)
    paths = {f"model.{path}": path for path, _ in model.named_modules() if path}
    freed = {paths[row.name]: row.freed for row in rows if row.name in paths and row.freed is not None}
    assert sum(nbytes > 0 for nbytes in freed.values()) > 3 and 0 in freed.values()
    for path, nbytes in freed.items():
        with checkpointed(model, [path]):
            assert held - held_after_forward(model, tokens) == pytest.approx(nbytes, abs=0.01 * held)


@pytest.mark.parametrize("part", [0.9, 0.75, 0.5, 0.3])
def test_a_budget_that_a_set_of_modules_keeps_is_kept(part: float) -> None:
    torch.manual_seed(0)
    model, tokens = GPT(layers=1, width=16), torch.randint(100, (2, 32))
    with gradviz.record() as recording:
        loss = model(tokens)
    graph = recording.graph(loss, model=model)
    plan = checkpoint_plan(graph, int(saved(graph).total.held * part))
    costs = ModuleCosts(graph)
    useful = [path for path in costs.scopes if wrapped(graph, path).held < costs.total]
    ops = []
    for count in range(len(useful) + 1):
        for paths in combinations(useful, count):
            state = Checkpointed(costs, paths)
            if state.peak <= plan.budget:
                ops.append(state.ops)
    assert plan.fits == bool(ops)
    if ops:
        assert plan.again == min(ops)
