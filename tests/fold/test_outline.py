"""Rows of a tree of modules add up to the row around them, in the order in which they ran."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import gradviz
from gradviz.fold.outline import OutlineRow, modules
from gradviz.graph import Graph
from tests.fold.test_true_boxes import Block


class Skips(nn.Module):
    """Pools and concatenates between its modules, as a U-Net does."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(8, 1, 1)
        self.unused = nn.Parameter(torch.zeros(100))

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.relu(self.down(x))
        small = torch.relu(self.up(nn.functional.max_pool2d(skip, 2)))
        grown = nn.functional.interpolate(small, scale_factor=2)
        return self.out(torch.cat([skip, grown], 1))


def recorded(net: nn.Module, x: Tensor) -> Graph:
    with gradviz.record() as recording:
        loss = net(x).pow(2).mean()
    return recording.graph(loss, model=net)


GRAPHS = {
    "skips": lambda: recorded(Skips(), torch.randn(1, 1, 8, 8)),
    "blocks": lambda: recorded(nn.Sequential(*[Block() for _ in range(5)]), torch.randn(2, 5, 16)),
    "lists": lambda: recorded(
        nn.Sequential(*[nn.Sequential(*[Block() for _ in range(3)]) for _ in range(4)]), torch.randn(2, 5, 16)
    ),
    "twice": lambda: recorded(nn.Sequential(shared := nn.Linear(4, 4), nn.Tanh(), shared), torch.randn(2, 4)),
}


def children(rows: list[OutlineRow], at: int) -> list[OutlineRow]:
    below = []
    for row in rows[at + 1 :]:
        if row.depth <= rows[at].depth:
            break
        if row.depth == rows[at].depth + 1:
            below.append(row)
    return below


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("ops", [False, True])
def test_rows_add_up(name: str, ops: bool) -> None:
    graph = GRAPHS[name]()
    rows = list(modules(graph, ops=ops))
    for at, row in enumerate(rows):
        below = children(rows, at)
        if below:
            assert sum(inner.ops for inner in below) == row.ops
            assert sum(inner.nbytes for inner in below) == row.nbytes
    assert sum(row.ops for row in rows if row.depth == 0) == len(graph.nodes) - len(graph.leaves)


def test_what_a_module_does_beside_its_modules_has_a_row_where_it_ran() -> None:
    rows = [row for row in modules(GRAPHS["skips"]()) if row.depth == 1]
    assert [row.path or row.beside for row in rows][:2] == ["net.down", "relu to cat"]


def test_lists_in_lists_are_joined_in_both() -> None:
    rows = [row for row in modules(GRAPHS["lists"]()) if row.alike > 1]
    assert [(row.path, row.alike, row.calls) for row in rows] == [("net.0–3", 4, 1), ("net.0.0–2", 3, 1)]


def test_parameters_that_the_graph_does_not_use_are_said() -> None:
    rows = list(modules(GRAPHS["skips"]()))
    assert rows[0].registered == rows[0].parameters + 100


class Twins(nn.Module):
    """Loops and statements of one text that compute different things."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def step(self, x: Tensor, turns: int) -> Tensor:
        for _ in range(turns):
            x = x.sin() * x.exp()
        return x

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x).tanh() if i else layer(x).sigmoid()
            x = self.step(x, 2 + i % 2)
        for _ in range(3):
            x = x + x.cos()
        for _ in range(3):
            x = x - x.cos()
        x = x.sin() * x.exp()
        x = (x.log() + 1).sqrt()
        return x


def test_rows_sum_what_their_text_says_and_nothing_else() -> None:
    rows = list(modules(recorded(Twins(), torch.randn(2, 4))))
    told = [(row.path or row.beside, row.turns, row.calls, row.ops) for row in rows]
    # each loop and each statement of the code has its own row
    assert told.count(("for _ in range(3)", 3, 1, 6)) == 2
    assert ("x = x.sin() * x.exp()", 0, 1, 3) in told and ("x = (x.log() + 1).sqrt()", 0, 1, 3) in told
    # its turns in several calls are one row, with a count that is true of every call
    assert ("for _ in range(turns)", 0, 4, 30) in told and ("x = x.sin() * x.exp()", 0, 10, 30) in told
    # what only the first turn does is not said of all
    assert ("sigmoid to tanh", 0, 1, 4) in told


class Activated(nn.Module):
    """A loop of which each turn calls one of alike modules, and computes something."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def test_modules_that_the_turns_of_a_loop_call_are_joined() -> None:
    rows = list(modules(recorded(Activated(), torch.randn(2, 4))))
    assert [(row.path, row.alike, row.ops) for row in rows if row.alike > 1] == [("net.layers.0–4", 5, 10)]
    assert "tanh" in {row.beside for row in rows}
