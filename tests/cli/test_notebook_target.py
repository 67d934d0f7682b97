"""A notebook as the TARGET of commands: its cells run as a script, and places name cell and line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.cli.conftest import Gradviz
from tests.cli.scripts import gradviz as process

SETUP = """\
%matplotlib inline
import torch
from torch import nn
"""
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.a(x).relu().detach()
        return self.b(h)
"""
TRAIN = """\
%%time
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.ones(3, 2, 4):
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    %time optimizer.step()
"""


def notebook(path: Path, *cells: str) -> Path:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Training"), *map(_cell, cells)])
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)
    return path


def _cell(text: str) -> Any:
    return nbformat.v4.new_code_cell(text)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return notebook(tmp_path / "train.ipynb", SETUP, "", NET, TRAIN)


def test_a_finding_names_cell_and_line(gradviz: Gradviz, train: Path) -> None:
    said = gradviz("check", train.name, code=1)
    assert "where:  net.a (Linear), cell 2, line 7\n" in said.output
    assert "why:    line 7 detaches" in said.output
    assert said.stderr.count("%matplotlib inline") == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("tree", "--by", "node"), "addmm  (2, 1) float32  net.b, cell 2, line 8"),
        (("saved", "--by", "line"), "cell 3, line 5  loss = net(x).pow(2).mean()"),
        (("tree",), "train.ipynb: loss.backward() at cell 3, line 7, call 1"),
        (("check", "--fail-on", "never"), "cell 2, line 7"),
        (("tensors",), "net.a.weight"),
        (("flow", "--json"), "net.b.weight"),
    ],
    ids=lambda case: case[0] if isinstance(case, tuple) else None,
)
def test_commands_take_a_notebook(gradviz: Gradviz, train: Path, command: tuple[str, ...], expected: str) -> None:
    name, *options = command
    assert expected in gradviz(name, train.name, *options).output


def test_why_names_the_cell_that_cuts(gradviz: Gradviz, train: Path) -> None:
    assert "cell 2, line 7 detaches a tensor computed from it" in gradviz("why", train.name, "net.a.weight").output


def test_a_saved_graph_of_a_notebook_still_names_its_cells(gradviz: Gradviz, train: Path) -> None:
    gradviz("render", train.name, "-o", "g.json")
    train.unlink()
    assert "cell 3, line 5" in gradviz("saved", "g.json", "--by", "line").output


def test_sarif_names_the_notebook_and_the_cell(gradviz: Gradviz, train: Path) -> None:
    report = json.loads(gradviz("check", train.name, "--sarif", "--fail-on", "never").stdout)
    (place,) = report["runs"][0]["results"][0]["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "train.ipynb"}}
    assert place["logicalLocations"] == [{"name": "cell 2, line 7"}]


@pytest.mark.slow
def test_it_runs_in_its_folder_and_fails_with_its_own_traceback(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "data.txt").write_text("3")
    cells = "import torch\nn = int(open('data.txt').read())", "w = torch.ones(n, requires_grad=True)\n1 / (n - 3)"
    notebook(tmp_path / "deep" / "n.ipynb", *cells)
    ended = process("tree", "deep/n.ipynb:w", cwd=tmp_path)
    assert ended.returncode == 3 and ended.stdout == ""
    file = tmp_path / "deep" / "n.ipynb, cell 2"
    assert f'  File "{file}", line 2, in <module>\n    1 / (n - 3)\n' in ended.stderr
    assert "gradviz/run" not in ended.stderr and sorted(os.listdir(tmp_path)) == ["deep"]


@pytest.mark.long
@pytest.mark.slow
def test_the_numbers_of_cells_are_those_of_a_run_in_jupyter(train: Path) -> None:
    text = SETUP.replace("%matplotlib inline", "!true"), "", NET, "1 / 0"
    notebook(train, *text)
    ran = nbformat.read(train, as_version=4)
    NotebookClient(ran, timeout=120, allow_errors=True).execute()
    assert ran.cells[-1].execution_count == 3
    ended = process("tree", train.name, cwd=train.parent)
    assert "n.ipynb, cell 3" in ended.stderr
