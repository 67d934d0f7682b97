"""`gradviz render`: where the result goes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradviz.graph.files import load
from tests.cli.conftest import Gradviz
from tests.cli.scripts import TRAINING, script


def test_the_suffix_decides_the_format_and_the_path_is_printed(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    for name, start in (("net.dot", "digraph"), ("net.json", "{")):
        assert gradviz("render", path, "-o", name).stdout.splitlines() == [name]
        assert (tmp_path / name).read_text().startswith(start)


@pytest.mark.parametrize(
    ("format", "target", "written"),
    [("dot", "", "script.dot"), ("json", ":model.weight", None), ("json", ":f", "script.json")],
)
def test_without_output_the_file_is_named_after_the_script(
    gradviz: Gradviz, tmp_path: Path, format: str, target: str, written: str | None
) -> None:
    path = script(tmp_path / "deep", TRAINING + "def f(): return model.weight * 2\n")
    result = gradviz("render", f"{path}{target}", "--format", format, code=0 if written else 2)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(filter(None, ["deep", written]))
    assert (written is None) or result.stdout.splitlines()[-1] == written


def test_format_wins_over_the_suffix(gradviz: Gradviz, tmp_path: Path) -> None:
    gradviz("render", script(tmp_path, TRAINING), "-o", "net.txt", "--format", "dot")
    assert (tmp_path / "net.txt").read_text().startswith("digraph")


def test_a_saved_graph_draws_what_the_script_drew(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    gradviz("render", path, "-o", "net.json")
    direct = gradviz("render", path, "-o", "-", "--format", "dot").stdout
    assert gradviz("render", "net.json", "-o", "-", "--format", "dot").stdout == direct
    graph = load(str(tmp_path / "net.json"))
    assert {name for leaf in graph.leaves for name in leaf.names} == {"model.weight", "model.bias"}


def test_the_output_is_relative_to_where_gradviz_was_called(gradviz: Gradviz, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = script(tmp_path, "import os\nos.mkdir('else')\nos.chdir('else')\n" + TRAINING.lstrip())
    gradviz("render", path, "-o", "out/net.json")
    assert (tmp_path / "out" / "net.json").exists()


TALL = """
import torch

x = torch.rand(3, requires_grad=True)
loss = x
for _ in range(120):
    loss = (loss * x).sin()
loss.sum().backward()
"""


def test_a_picture_too_tall_to_read_says_so_and_names_the_page(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TALL)
    told = gradviz("render", path, "--depth", "all", "-o", "net.svg")
    assert re.search(r"net.svg is [\d,]+ pixels tall; -o net.html writes a page", told.stderr)
    assert "pixels" not in gradviz("render", path, "-o", "small.svg").stderr


def test_a_wrong_module_gets_the_one_that_is_meant(gradviz: Gradviz, tmp_path: Path) -> None:
    text = (
        "import torch\nfrom torch import nn\n"
        "model = nn.ModuleDict({'h': nn.ModuleList(nn.ModuleDict({'attn': nn.Linear(2, 2)}) for _ in range(9))})\n"
        "x = torch.rand(3, 2)\nfor h in model['h']:\n    x = h['attn'](x)\nx.sum().backward()\n"
    )
    path = script(tmp_path, text)
    for name in ("attn", "h.0.attn", "net.model.h.0.attn", "model.h.0.atn"):
        told = gradviz("render", path, "--focus", name, code=2).stderr
        assert "Did you mean model.h.0.attn" in told, name
