"""`gradviz render`: where the result goes."""

from __future__ import annotations

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
