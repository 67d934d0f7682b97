"""`gradviz fit` on whole scripts: it runs them in children, in a copy of the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Gradviz

NET = """
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=64)
given = parser.parse_args()
size = 16
net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(net.parameters())
open("written.txt", "w").write("x")
"""
STEPS = """
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOADER = f"{NET}for (x,) in DataLoader(TensorDataset(torch.randn(512, 32)), batch_size=128):{STEPS}"
OPTION = f"{NET}for _ in range(3):\n    x = torch.randn(given.bs, 32){STEPS}"
NAME = f"{NET}for _ in range(3):\n    x = torch.randn(size, 32){STEPS}"
PARAMETERS = 4 * (32 * 256 + 256 + 256 + 1)


def fit(gradviz: Gradviz, folder: Path, source: str, *options: str, code: int = 0) -> Any:
    (folder / "train.py").write_text(source)
    result = gradviz("fit", "train.py", "--cpu", "--json", *options, code=code)
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options", "now"),
    [(LOADER, [], 128), (OPTION, ["--batch", "--bs"], 64), (NAME, ["--batch", "size"], 16)],
)
def test_the_batch_is_found_and_the_folder_stays(
    gradviz: Gradviz, tmp_path: Path, source: str, options: list[str], now: int
) -> None:
    told = fit(gradviz, tmp_path, source, "--memory", "1MiB", "--margin", "0", *options)
    assert told["batch"]["now"] == now
    assert told["peak"]["parameters"] == PARAMETERS
    assert told["peak"]["total"] == sum(bytes for kind, bytes in told["peak"].items() if kind != "total")
    largest = told["batch"]["largest"]
    at_largest = fit(gradviz, tmp_path, source.replace("=128)", f"={largest})"), "--memory", "1GiB", "--once")
    assert source is not LOADER or largest > 512 or at_largest["peak"]["total"] <= 2**20


@pytest.mark.slow
def test_its_table_is_for_spreadsheets_too(gradviz: Gradviz, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOADER)
    printed = gradviz("fit", "train.py", "--cpu", "--memory", "1GiB", "--format", "csv").stdout.splitlines()
    peak = fit(gradviz, tmp_path, LOADER, "--memory", "1GiB")["phases"]
    assert printed[0] == "held,setup,forward,backward,optimizer step"
    assert printed[-1].split(",")[1:] == [str(phase["total"]) for phase in peak.values()]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "part"), [(["--cpu"], 0.8), ([], 0.9), (["--cpu", "--margin", "0"], 1)])
def test_convolutions_on_a_cpu_have_a_wide_margin(
    gradviz: Gradviz, tmp_path: Path, options: list[str], part: float
) -> None:
    net = "net = nn.Conv1d(1, 4, 3)"
    source = NET.replace("net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))", net)
    (tmp_path / "train.py").write_text(f"{source}for _ in range(3):\n    x = torch.randn(size, 1, 32){STEPS}")
    told = json.loads(gradviz("fit", "train.py", "--batch=size", "--memory", "1GiB", "--json", *options).stdout)
    assert told["limit"] == int(2**30 * part)
    assert any("workspaces on a CPU" in note for note in told["notes"]) == ("--cpu" in options)


@pytest.mark.slow
def test_what_does_not_fit_is_an_exit_code(gradviz: Gradviz, tmp_path: Path) -> None:
    told = fit(gradviz, tmp_path, LOADER, "--memory", "200KiB", code=1)
    assert (told["fits"], told["batch"]["largest"]) == (False, 0)


@pytest.mark.slow
def test_without_a_batch_it_says_why(gradviz: Gradviz, tmp_path: Path) -> None:
    told = fit(gradviz, tmp_path, NAME, "--memory", "1GiB")
    assert told["batch"]["largest"] is None
    assert "--batch NAME" in told["batch"]["why"]


@pytest.mark.slow
def test_fake_tensors_tell_the_same(gradviz: Gradviz, tmp_path: Path) -> None:
    options = ["--memory", "1GiB", "--batch", "size", "--once"]
    assert fit(gradviz, tmp_path, NAME, *options)["peak"] == fit(gradviz, tmp_path, NAME, "--fake", *options)["peak"]


@pytest.mark.slow
def test_a_script_that_fails_ends_with_what_it_said(gradviz: Gradviz, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nraise ValueError('no data')\n")
    assert "no data" in gradviz("fit", "train.py", "--memory", "1GiB", code=3).output


@pytest.mark.parametrize("target", ["train.py:loss", "graph.json"])
def test_only_whole_scripts_are_taken(gradviz: Gradviz, tmp_path: Path, target: str) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "graph.json").write_text("{}")
    assert "whole script" in gradviz("fit", target, "--memory", "1GiB", code=2).output


@pytest.mark.parametrize("option", [["--at", "2"], ["--continue"]])
def test_it_runs_to_the_second_step(gradviz: Gradviz, tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "train.py").write_text("")
    assert "second optimizer step" in gradviz("fit", "train.py", "--memory", "1GiB", *option, code=2).output
