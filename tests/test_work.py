"""Nothing grows faster than what it reads: the work is counted, as calls of functions, not timed."""

from __future__ import annotations

import cProfile
import importlib.util
import pstats
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.graph import Graph
from gradviz.layout import layered
from gradviz.walker.tensors import elements_of_each


def work(job: Callable[[], object]) -> int:
    """How many functions a job calls, those of C among them, the second time that it runs."""
    job()
    profile = cProfile.Profile()
    profile.runcall(job)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


LAYER = """
class Layer{i}(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.left = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        for _ in range(1):
            x = x + self.used(x)
        return x
"""
HEADS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(8):
            self.add_module(f"head{i}", nn.Linear(2, 2))

    def forward(self, x):
        return self.head0(x)
"""


def imported(text: str, path: Path) -> ModuleType:
    """A file with this text as a module."""
    path.write_text("from torch import nn\n" + text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_unused_parameters_in_a_long_file(tmp_path: Path) -> None:
    """Torch's own files are not read for them, and the user's is walked once."""
    text = "".join(LAYER.format(i=i) for i in range(100)) + HEADS
    module = imported(text, tmp_path / "long.py")
    net = module.Net()
    loss = net(module.nn.Parameter(module.nn.Linear(2, 2).weight)).sum()
    read = work(lambda: gradviz.saved(gradviz.walk(loss, model=net)))
    assert work(lambda: gradviz.check(loss, model=net)) < 10 * read


def nested(depth: int) -> nn.Module:
    """A layer in so many containers."""
    model: nn.Module = nn.Linear(2, 2)
    for _ in range(depth):
        model = nn.Sequential(model)
    return model


def recorded(model: nn.Module) -> Graph:
    """The graph of one call."""
    with gradviz.record() as recording:
        loss = model(torch.ones(1, 2)).sum()
    return recording.graph(loss, model=model)


def drawn(depth: int) -> int:
    """The work of the picture of a layer in so many containers."""
    graph = recorded(nested(depth))
    return work(lambda: render(graph, "svg"))


def checked(layers: int) -> int:
    """The work of a check of so many layers."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
    loss = model(torch.ones(1, 2)).sum()
    return work(lambda: gradviz.check(loss, model=model))


@pytest.mark.parametrize(
    ("job", "small"),
    [
        pytest.param(lambda size: work(lambda: recorded(nested(size))), 20, id="recording modules in each other"),
        pytest.param(drawn, 20, id="their picture"),
        pytest.param(checked, 100, id="a check of many layers"),
    ],
)
def test_four_times_as_much_is_about_four_times_the_work(job: Callable[[int], int], small: int) -> None:
    assert job(4 * small) < 6 * job(small)


def test_numbers_that_modules_share_count_once_in_each() -> None:
    first, second = nn.Linear(2, 3), nn.Linear(2, 3)
    second.weight = first.weight
    both = nn.ModuleList([first, nn.ModuleList([first, second]), nn.LazyLinear(1)])
    found = elements_of_each(both)
    assert [found[id(module)] for _, module in both.named_modules()] == [None, 9, 12, 9, None]


@pytest.mark.long
def test_memory_of_one_tensor_that_is_used_often() -> None:
    peaks = []
    for uses in (300, 900):
        x = torch.ones(4, requires_grad=True) * 2
        graph = gradviz.walk(torch.stack([x * float(i) for i in range(uses)]).sum())
        tracemalloc.start()
        render(graph, "svg", Options(depth="all"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 4.5 * peaks[0]


def test_what_was_measured_is_drawn_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that folds to a few boxes is laid out once: no other has more of them."""
    cell, state = nn.LSTMCell(4, 4), (torch.zeros(1, 4), torch.zeros(1, 4))
    with gradviz.record() as recording:
        for _ in range(30):
            state = cell(torch.ones(1, 4), state)
    graph = recording.graph(state[0].sum(), model=cell)
    layouts, place = list[int](), layered.place
    monkeypatch.setattr(layered, "place", lambda drawing: layouts.append(1) or place(drawing))
    render(graph, "svg")
    assert len(layouts) == 1
