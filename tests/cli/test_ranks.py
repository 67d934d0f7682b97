"""Each of several processes of a launcher, such as torchrun, writes files of its own, and one of them reports."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from gradviz.draw.output import save
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
    assert "script.rank1.svg" not in result.output
    result = gradviz("render", path, "-o", "out.json", "--rank", 1)
    assert result.stdout.splitlines()[-1] == "out.rank1.json"
    assert "Each of 2 ranks writes a file of its own: rank 1 writes out.rank1.json." in result.stderr
    assert gradviz("diff", path, "--at", 1, "--at", 2, "-o", "diff.html").stdout == ""  # and 0, which another rank says
    names = {one.name for one in tmp_path.iterdir()}
    assert names >= {"script.rank1.svg", "out.rank1.json", "diff.rank1.html"}
    assert not {"script.svg", "out.json", "diff.html"} & names


@pytest.mark.usefixtures("second_of_two")
@pytest.mark.parametrize("command", ["tree", "check", "tensors", "paths"])
def test_one_rank_reports_and_says_which_it_is(gradviz: Gradviz, tmp_path: Path, command: str) -> None:
    extra = ["--to", "model.weight"] if command == "paths" else []
    path = script(tmp_path, TRAINING)
    assert "rank 1 of 2" in gradviz(command, path, *extra, "--rank", 1).stdout.splitlines()[0]
    assert gradviz(command, path, *extra).stdout == ""


@pytest.mark.usefixtures("second_of_two")
def test_what_a_launcher_ends_writes_its_file_first(
    gradviz: Gradviz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def noting(*arguments: Any, **options: Any) -> str:
        seen.append(signal.getsignal(signal.SIGTERM))
        return save(*arguments, **options)

    monkeypatch.setattr("gradviz.cli.render.save", noting)
    before = signal.getsignal(signal.SIGTERM)
    gradviz("render", script(tmp_path, TRAINING))
    assert seen == [signal.SIG_IGN] and signal.getsignal(signal.SIGTERM) == before


@pytest.mark.usefixtures("second_of_two")
def test_a_rank_that_is_not_there(gradviz: Gradviz, tmp_path: Path) -> None:
    told = gradviz("tree", script(tmp_path, TRAINING), "--rank", 2, code=2).stderr
    assert "there is no rank 2: 2 processes run this command." in told


@pytest.mark.parametrize(("rank", "world"), [("", ""), ("0", "1"), ("0", ""), ("x", "2")])
def test_a_process_that_is_alone(
    gradviz: Gradviz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, world: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    assert gradviz("render", script(tmp_path, TRAINING)).stdout == "script.svg\n"
    assert "there is no rank 1: 1 process runs this command." in gradviz("tree", "x.py", "--rank", 1, code=2).stderr
