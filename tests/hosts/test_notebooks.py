"""What cells show, counted over all outputs of a kernel: a result once, however it is asked for."""

from __future__ import annotations

import pytest

from tests.hosts.notebooks import Output, outputs

pytestmark = pytest.mark.slow

SETUP = """
import torch, gradviz
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
spare = torch.nn.Linear(2, 2)
both = torch.nn.ModuleDict({"net": net, "spare": spare})
with gradviz.record() as recording:
    loss = net(torch.ones(2, 3)).pow(2).sum()
graph = recording.graph(loss, model=both)
"""
RESULTS = {
    "graph": ("graph", "TanhBackward0"),
    "tree": ("graph.tree()", "Sequential"),
    "nodes": ("graph.tree(by='node')", "tanh"),
    "check": ("gradviz.check(loss, model=both)", "spare.weight"),
    "saved": ("gradviz.saved(graph)", "held for backward"),
    "total": ("gradviz.saved(graph).total", " B"),
    "flow": ("gradviz.flow(loss, model=both)", "net.0.weight"),
    "paths": ("gradviz.paths(loss, net[0].weight, model=both)", "1 path from loss to"),
    "diff": ("gradviz.diff(graph, gradviz.walk(loss.exp(), model=both))", "11 the same"),
    "make_dot": ("gradviz.make_dot(loss, params=dict(both.named_parameters()))", "TanhBackward0"),
}
SHOWN = {
    "gradviz.show(graph)": 1,
    "for _ in range(2): gradviz.show(graph)": 2,
    "gradviz.show(graph)\nprint('after')": 1,
}
"""Cells, and how many pages each shows."""
WAYS = {
    "last": "result",
    "print": "print(result)",
    "str": "words = str(result)",
    "f-string": "words = f'{result}'",
    "repr": "words = repr(result)",
    "display": "display(result)",
}


@pytest.fixture(scope="module")
def shown() -> dict[tuple[str, str], list[Output]]:
    """The outputs of each result, by how it was asked for."""
    asked = [(result, way) for result in RESULTS for way in WAYS]
    cells = [SETUP, *(f"result = {RESULTS[result][0]}\n{WAYS[way]}" for result, way in asked)]
    first, *others = outputs(cells)
    assert first == []
    return dict(zip(asked, others))


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_is_shown_once_however_it_is_asked_for(
    shown: dict[tuple[str, str], list[Output]], result: str
) -> None:
    kinds = {way: [output.kind for output in shown[result, way]] for way in WAYS}
    silent: list[str] = []
    assert kinds == {
        "last": ["execute_result"],
        "print": ["stream"],
        "display": ["display_data"],
        "str": silent,
        "f-string": silent,
        "repr": silent,
    }
    (printed,) = shown[result, "print"]
    assert RESULTS[result][1] in printed.text and " object at 0x" not in printed.text


@pytest.mark.long
def test_show_shows_at_once_and_once() -> None:
    """In a loop and before a print, too."""
    _, *cells = outputs([SETUP, *SHOWN])
    shown = [[output for output in cell if output.kind != "stream"] for cell in cells]
    assert list(map(len, shown)) == list(SHOWN.values())
    assert all("<iframe" in output.data["text/html"] for cell in shown for output in cell)


@pytest.mark.parametrize("result", ["check", "saved", "flow", "paths", "diff", "tree", "graph"])
def test_the_last_expression_has_what_print_says(shown: dict[tuple[str, str], list[Output]], result: str) -> None:
    (last,), word = shown[result, "last"], RESULTS[result][1]
    assert any(word in text for text in last.data.values())
    assert " object at 0x" not in last.text
