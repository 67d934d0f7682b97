"""`%load_ext gradviz` in a real kernel: every output of every cell, counted, and the HTML that nbconvert writes of them."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gradviz.run.outputs import lookup
from tests.cli.scripts import environment
from tests.hosts.notebooks import Output, executed, outputs_of

pytestmark = pytest.mark.slow

SETUP = """\
%load_ext gradviz
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x):
        h = self.a(x).relu().detach()
        return self.b(h)
net, x = Net(), torch.ones(2, 4)
"""
TRAIN = """\
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
%time step + 1
"""
CELLS = {
    "setup": SETUP,
    "picture": f"%%gradviz\n{TRAIN.replace('%time ', '')}",
    "without backward": "%%gradviz\nnet(x).sum()",
    "silent": "%%gradviz --tree\nnet(x).sum();",
    "check": f"%%gradviz --check\n{TRAIN.replace('%time step + 1', '')}",
    "saved": "%%gradviz --saved\nlater = net(x).pow(2).mean()",
    "tree": "%%gradviz --tree\nlater = net(x).pow(2).mean()",
    "page": "%%gradviz --page\nlater = net(x).pow(2).mean()",
    "unknown": "%%gradviz --chekc\nlater = 1 / 0",
    "nothing": "%%gradviz\nnumber = 1",
    "failed": "%%gradviz\nh = net.b(x.new_ones(1, 8))\nh / nobody",
    "mistake": "%%gradviz\nh = = 1",
    "failed check": "%%gradviz --check\ny = net(x).mean()\ny.backward()\ny.backward()",
    "why": "%gradviz why net.a.weight.grad",
    "why nobody": "%gradviz why net.c",
    "line": "%gradviz --check",
    "value": "%%gradviz --saved\n7 * 6",
    "raised": "%%gradviz\nten = 10\nraise ValueError(ten)",
    "interrupted": "%%gradviz\nlater = net(x).mean()\nraise KeyboardInterrupt",
    "two": "%%gradviz --check --saved\nnot_run = 1",
    "help": "%%gradviz --help\nnot_run = 1",
    "unloaded": "%unload_ext gradviz\n%gradviz",
    "plain check": "import gradviz\ngradviz.check(net(x).sum(), model=net)",
    "graph": "gradviz.walk(net(x).sum(), model=net)",
}


@pytest.fixture(scope="module")
def shown() -> dict[str, list[Output]]:
    return dict(zip(CELLS, outputs_of(executed(list(CELLS.values()), allow_errors=True))))


def kinds(outputs: list[Output]) -> list[str]:
    return [output.kind for output in outputs]


def table(output: Output) -> str:
    """The words of a result's HTML."""
    return html.unescape(re.sub(r"<style>.*?</style>|<[^>]*>", "", output.data["text/html"]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("setup", []),
        ("picture", ["display_data", "execute_result"]),
        ("without backward", ["display_data", "execute_result"]),
        ("silent", ["display_data"]),
        ("check", ["display_data"]),
        ("saved", ["display_data"]),
        ("tree", ["display_data"]),
        ("page", ["display_data"]),
        ("unknown", ["stream"]),
        ("nothing", ["stream"]),
        ("failed", ["display_data", "error"]),
        ("mistake", ["error"]),
        ("failed check", ["display_data", "error"]),
        ("why", ["display_data"]),
        ("why nobody", ["stream"]),
        ("line", ["stream"]),
        ("value", ["stream", "execute_result"]),
        ("raised", ["error"]),
        ("interrupted", ["error"]),
        ("two", ["stream"]),
        ("help", ["stream"]),
        ("unloaded", ["stream"]),
        ("plain check", ["execute_result"]),
        ("graph", ["execute_result"]),
    ],
)
def test_every_output_is_there_once(shown: dict[str, list[Output]], name: str, expected: list[str]) -> None:
    assert kinds(shown[name]) == expected, shown[name]


def test_a_cell_with_a_backward_call_shows_the_graph_of_the_first_and_its_own_result(
    shown: dict[str, list[Output]],
) -> None:
    graph, value = shown["picture"]
    assert graph.text.startswith("Graph of cell 2: loss.backward() at cell 2, line 6, call 1\n")
    assert value.text == "4" and "image/svg+xml" in graph.data


def test_a_cell_without_one_shows_what_it_made(shown: dict[str, list[Output]]) -> None:
    graph, value = shown["without backward"]
    assert graph.text.startswith("Graph of cell 3: output\n") and value.text.startswith("tensor(")
    assert "cell 6: later" in shown["tree"][0].text or "cell 7: later" in shown["tree"][0].text


def test_the_code_of_a_cell_is_read(shown: dict[str, list[Output]]) -> None:
    assert not any("its text is not what ran" in output.text for outputs in shown.values() for output in outputs)


def test_findings_name_the_cells_that_the_code_is_in(shown: dict[str, list[Output]]) -> None:
    for name in ("check", "plain check"):
        (findings,) = shown[name]
        assert "(Linear)" in table(findings) and "ipykernel" not in table(findings)
    assert "where:  net.a (Linear), cell 1, line 9" in table(shown["check"][0])


def test_what_cannot_be_done_is_one_line(shown: dict[str, list[Output]]) -> None:
    assert shown["unknown"][0].text == "UsageError: %%gradviz does not know '--chekc'. Did you mean --check?\n"
    assert shown["two"][0].text.startswith("UsageError: %%gradviz takes one option at a time: --picture, --check, ")
    assert [line.split()[1] for line in shown["help"][0].text.splitlines()[1:6]] == [
        "--picture", "--check", "--saved", "--page", "--tree",
    ]  # fmt: skip
    assert "UsageError: net in this notebook is a Net and has no 'c'" in shown["why nobody"][0].text
    assert "%gradviz why NAME" in shown["line"][0].text
    assert "Line magic function `%gradviz` not found" in shown["unloaded"][0].text


def test_what_a_cell_raises_is_shown_once_by_the_notebook_without_our_frames(shown: dict[str, list[Output]]) -> None:
    graph, error = shown["failed"]
    assert "until it failed at cell 11, line 3" in graph.text
    assert "name 'nobody' is not defined" in error.text and "gradviz/run" not in error.text
    assert "h / nobody" in error.text
    assert "freed-graph" in shown["failed check"][0].text


def test_a_cell_that_raises_shows_its_own_lines_and_no_graph_of_earlier_cells(shown: dict[str, list[Output]]) -> None:
    (error,) = shown["raised"]
    assert "raise ValueError(ten)" in error.text and "ValueError: 10" in error.text
    assert "run_cell_magic" not in error.text and "ipython.py" not in error.text
    (interrupt,) = shown["interrupted"]
    assert "raise KeyboardInterrupt" in interrupt.text and "ipython.py" not in interrupt.text
    assert "gradviz/run" not in shown["mistake"][0].text
    graph = shown["failed"][0].text
    assert re.findall(r"outputs +(\w+)", graph) == ["h"] and "later" not in graph


def test_a_cell_without_a_graph_keeps_its_value_and_is_told_what_can_be_done_there(
    shown: dict[str, list[Output]],
) -> None:
    said, value = shown["value"]
    assert value.text == "42" and "Call backward() in it" in said.text and ":NAME" not in said.text
    assert shown["nothing"][0].text.startswith("gradviz: cell 10 called no backward() and assigned no variable")


def test_the_page_is_in_a_sandboxed_frame_and_nothing_else_runs(shown: dict[str, list[Output]]) -> None:
    for name in ("picture", "page", "graph"):
        (text,) = [output.data["text/html"] for output in shown[name] if "text/html" in output.data]
        outside = re.sub(r'<iframe sandbox="allow-scripts[^"]*" [^>]*srcdoc="[^"]*">', "", text)
        assert "srcdoc" not in outside and "<script" not in outside and text.count("<iframe") == 1
    assert "<summary" in shown["graph"][0].data["text/html"]


TERMINAL = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
for cell in ({SETUP!r}, "%%gradviz --check\\nloss = net(x).sum()\\nloss.backward()", "%gradviz why net.a.weight"):
    shell.run_cell(cell, store_history=True)
"""


def test_in_a_terminal_results_are_printed_as_their_tables() -> None:
    said = subprocess.run([sys.executable, "-c", TERMINAL], env=environment(), capture_output=True, text=True).stdout
    assert said.count("warning: 2 parameters of net.a (Linear) do not get a gradient") == 1
    assert "where:  net.a (Linear), cell 1, line 9" in said and "because    " in said
    assert "<Why" not in said and "<Findings" not in said


@pytest.mark.skipif(find_spec("nbconvert") is None, reason="nbconvert is not installed")
def test_nbconvert_writes_what_was_shown(tmp_path: Path) -> None:
    import nbformat

    cells = [CELLS[name] for name in ("setup", "picture", "check", "saved")]
    nbformat.write(executed(cells), tmp_path / "n.ipynb")
    words = [sys.executable, "-m", "nbconvert", "--to", "html", "n.ipynb"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    page = (tmp_path / "n.html").read_text()
    assert "Open the interactive page" in page and "cell 1, line 9" in page and "<table" in page


@pytest.mark.parametrize("spelling", ["net[0].weight", "net.0.weight", "nets['a'][0].weight", 'nets["a"].0.weight'])
def test_a_name_may_be_written_as_python_writes_it(spelling: str) -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert lookup(spelling, [{"net": net, "nets": {"a": net}}], "here") is net[0].weight
