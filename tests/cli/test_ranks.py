"""Several processes of one launcher, such as torchrun, do not write over each other's files, and say which one they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import TRAINING, script


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.usefixtures("second_of_two")
def test_a_file_of_its_own(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    result = gradviz("render", path)
    assert (result.stdout, "This is" in result.stderr) == ("script.rank1.svg\n", False)
    result = gradviz("render", path, "-o", "out.json")
    assert result.stdout.splitlines()[-1] == "out.rank1.json"
    assert "This is rank 1 of 2, so it writes out.rank1.json and not out.json." in result.stderr
    gradviz("diff", path, "--at", 1, "--at", 2, "-o", "diff.svg")
    assert {one.name for one in tmp_path.iterdir()} >= {"out.rank1.json", "diff.rank1.svg"}
    assert not {"script.svg", "out.json", "diff.svg"} & {one.name for one in tmp_path.iterdir()}


@pytest.mark.usefixtures("second_of_two")
@pytest.mark.parametrize("command", ["tree", "info", "saved", "flow", "check", "tensors", "paths"])
def test_the_first_line_of_a_report_says_the_rank(gradviz: Gradviz, tmp_path: Path, command: str) -> None:
    extra = ["--to", "model.weight"] if command == "paths" else []
    assert "rank 1 of 2" in gradviz(command, script(tmp_path, TRAINING), *extra).stdout.splitlines()[0]


@pytest.mark.usefixtures("second_of_two")
def test_a_pipe_is_everybodys(gradviz: Gradviz, tmp_path: Path) -> None:
    assert (
        gradviz("render", script(tmp_path, TRAINING), "-o", os.devnull, "--format", "dot").stdout == f"{os.devnull}\n"
    )


@pytest.mark.parametrize(("rank", "world"), [("", ""), ("0", "1"), ("0", ""), ("x", "2")])
def test_a_process_that_is_alone(
    gradviz: Gradviz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, world: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    assert gradviz("render", script(tmp_path, TRAINING)).stdout == "script.svg\n"
