"""`gradviz fit` on whole scripts: it runs them in children, in a copy of the folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import environment
from tests.forks import REAL

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
    if source is LOADER and largest <= 512:
        at_largest = fit(gradviz, tmp_path, source.replace("=128)", f"={largest})"), "--memory", "1GiB", "--once")
        assert at_largest["peak"]["total"] <= 2**20


@pytest.mark.slow
def test_its_table_is_for_spreadsheets_too(gradviz: Gradviz, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOADER)
    options = ["--memory", "1GiB", "--once"]
    printed = gradviz("fit", "train.py", "--cpu", "--format", "csv", *options).stdout.splitlines()
    peak = fit(gradviz, tmp_path, LOADER, *options)["phases"]
    assert printed[0] == "held,setup,forward,backward,step"
    assert printed[-1].split(",")[1:] == [str(phase["total"]) for phase in peak.values()]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "part"), [(["--cpu"], 0.8), ([], 0.9), (["--cpu", "--margin", "0"], 1)])
def test_convolutions_on_a_cpu_have_a_wide_margin(
    gradviz: Gradviz, tmp_path: Path, options: list[str], part: float
) -> None:
    net = "net = nn.Conv1d(1, 4, 3)"
    source = NET.replace("net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))", net)
    (tmp_path / "train.py").write_text(f"{source}for _ in range(3):\n    x = torch.randn(size, 1, 32){STEPS}")
    told = json.loads(
        gradviz("fit", "train.py", "--batch=size", "--memory", "1GiB", "--once", "--json", *options).stdout
    )
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
def test_fake_tensors_need_no_workers(gradviz: Gradviz, tmp_path: Path) -> None:
    source = LOADER.replace("batch_size=128", "batch_size=128, shuffle=True, num_workers=2, persistent_workers=True")
    options = ["--memory", "1GiB", "--once"]
    real, fake = (fit(gradviz, tmp_path, source, *options, *more) for more in ([], ["--fake"]))
    assert real["batch"] == fake["batch"] and abs(real["peak"]["total"] - fake["peak"]["total"]) < 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("import torch\ndef f(:\n", 3, "train.py failed in a child process with batch 8: SyntaxError: invalid syntax"),
        (
            "import torch\nnet = torch.nn.Linear(3, 1)\nnet(torch.ones(2, 4))\n",
            3,
            "failed in a child process with batch 8 at train.py:3, `net(torch.ones(2, 4))`: RuntimeError: mat1",
        ),
        ("import torch\nexec('1/0')\n", 3, "with batch 8 at train.py:2, `exec('1/0')`: ZeroDivisionError"),
        ("import sys, torch\nsys.exit('no data')\n", 3, "ended in a child process with batch 8 with code 1\nno data"),
        ("import os, torch\nos.kill(os.getpid(), 11)\n", 3, "ended in a child process with batch 8 by SIGSEGV"),
        ("import torch\ntorch.ones(3).sum()\n", 2, "without backward() and without an optimizer step"),
        ("print('hello')\n", 2, "train.py does not import torch: nothing is trained."),
    ],
)
def test_a_script_that_cannot_be_measured_has_one_sentence(
    gradviz: Gradviz, tmp_path: Path, source: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "torch" not in source:
        monkeypatch.setattr(subprocess, "Popen", REAL)
    (tmp_path / "train.py").write_text(source)
    printed = gradviz("fit", "train.py", "--memory", "1GiB", code=code).stderr
    assert said in printed and "Traceback" not in printed and len(printed.splitlines()) <= 3


WAITING = """
import pathlib, subprocess, sys, time, torch
size = 2
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
(pathlib.Path(sys.argv[1]) / f"{helper.pid}").touch()
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_children_too(tmp_path: Path, number: int, code: int) -> None:
    """And whatever the script started. The folder is as before, the copy of it is gone, and one line says it."""
    folder, copies, helpers = (tmp_path / name for name in ("folder", "copies", "helpers"))
    for made in (folder, copies, helpers):
        made.mkdir()
    (folder / "train.py").write_text(WAITING)
    words = [
        sys.executable,
        "-m",
        "gradviz",
        "fit",
        "train.py",
        "--memory",
        "1GiB",
        "--batch",
        "size",
        "--",
        str(helpers),
    ]
    own = {**environment(), "TMPDIR": str(copies)}
    asked = subprocess.Popen(words, cwd=folder, env=own, stderr=subprocess.PIPE, text=True, preexec_fn=_listening)
    while len(list(helpers.iterdir())) < 2:
        assert asked.poll() is None
        time.sleep(0.1)
    asked.send_signal(number)
    said = asked.communicate()[1].splitlines()
    assert (asked.returncode, len(said)) == (code, 2), said
    assert [path.name for path in folder.iterdir()] == ["train.py"] and not list(copies.iterdir())
    for helper in helpers.iterdir():
        assert not _runs(int(helper.name))


def _listening() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background


def _runs(process: int) -> bool:
    """Whether a process is there that is no zombie."""
    status = Path(f"/proc/{process}/stat")
    for _ in range(20):
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("target", ["train.py:loss", "graph.json"])
def test_only_whole_scripts_are_taken(gradviz: Gradviz, tmp_path: Path, target: str) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "graph.json").write_text("{}")
    assert "whole script" in gradviz("fit", target, "--memory", "1GiB", code=2).output


@pytest.mark.parametrize("option", [["--at", "2"], ["--continue"]])
def test_it_runs_to_the_second_step(gradviz: Gradviz, tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "train.py").write_text("")
    assert "second optimizer step" in gradviz("fit", "train.py", "--memory", "1GiB", *option, code=2).output
