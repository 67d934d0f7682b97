"""Alike modules as one row."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradviz
from gradviz.memory.saved import saved
from gradviz.memory.series import series
from gradviz.memory.table import saved_table
from gradviz.report.results import plain


@pytest.mark.parametrize(
    ("paths", "titles"),
    [
        (["a.0", "a.1", "a.3"], ["a.*"]),
        (["a.10", "a.9", "b"], ["a.9–10", "b"]),
        (["a.0.n1", "a.0.n2", "a.1.n1", "a.1.n2", "a.2.n1", "a.2.n2"], ["a.0–2.n1–2"]),
        (["", "a"], ["", "a"]),
        ([], []),
    ],
)
def test_a_series_says_a_span_only_of_all_numbers(paths: list[str], titles: list[str]) -> None:
    found = list(series(paths, str, lambda _: None))
    assert [title for title, _ in found] == titles
    assert sorted(path for _, some in found for path in some) == sorted(paths)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def recorded(net: nn.Module) -> gradviz.Graph:
    with gradviz.record() as recording:
        loss = net(torch.randn(32, 16)).sum()
    return recording.graph(loss, model=net)


def test_one_line_that_holds_all_gives_way_to_modules_and_alike_ones_are_one_row() -> None:
    graph = recorded(Layers())
    result = saved(graph)
    assert result.by == "module" and saved(graph, "line").by == "line"
    text = plain(saved_table(saved(graph, "module")))
    assert "layers.0–5.1" in text and "Tanh ×6" in text and "exclusive" in text and "inclusive" in text
    assert len(result.rows) > len(text.split("in all")[0].splitlines()) - 1  # data is a row for each module


def test_without_a_choice_modules_are_a_tree_of_what_holds_enough() -> None:
    result = saved(recorded(Layers()))
    tree, below, *_ = plain(saved_table(result)).partition(" below 5 %")
    rows = [line for line in tree.splitlines() if "%" in line]
    assert len(rows) >= 2 and "100.0 %" in rows[0] and "█" in rows[0]
    assert any("×6" in row for row in rows) and below
    whole = result.total.held
    shown = [row for row in result.outline if row.nbytes >= 0.05 * whole]
    assert 2 <= len(rows) <= len(shown) < len(result.outline)
    assert not saved(recorded(Layers()), "line").outline


def test_inclusive_counts_each_storage_once_for_everything_around_it() -> None:
    result = saved(recorded(nn.Sequential(Layers(), nn.Tanh())), "module")
    rows = {row.name: row for row in result.rows}
    for name, row in rows.items():
        inside = [other.held for path, other in rows.items() if path == name or path.startswith(f"{name}.")]
        assert row.inclusive == sum(inside)
