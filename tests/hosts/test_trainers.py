"""Programs that a trainer runs, through the command line: what is shown of each is right, and what it prints is the same."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

import pytest

from tests.cli.scripts import gradviz, python

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"


class Host(NamedTuple):
    """What has to be installed, the name of the layer that nothing uses, and a backward function and a leaf of the graph."""

    packages: tuple[str, ...]
    spare: str
    op: str
    leaf: str


NET = "model.steps[1][1].module_"  # of a step of the pipeline
HOSTS = {
    "skorch": Host(("skorch",), f"{NET}.spare", "NllLossBackward0", f"{NET}.hidden.weight"),
    "lightning": Host(("lightning",), "model.spare", "MseLossBackward0", "model.body.0.weight"),
    "ignite": Host(("ignite",), "net.spare", "MseLossBackward0", "net.body.0.weight"),
    "accelerate": Host(("accelerate",), "net.spare", "MseLossBackward0", "net.body.0.weight"),
    "trainer": Host(("transformers", "accelerate"), "model.spare", "NllLossBackward0", "model.classifier.weight"),
}


@pytest.fixture(params=HOSTS)
def name(request: pytest.FixtureRequest) -> str:
    """Of a program whose packages are installed."""
    missing = [package for package in HOSTS[request.param].packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: pip install .[test-hosts]")
    return str(request.param)


@cache
def plain(name: str, folder: Path) -> list[str]:
    """What the program prints by itself."""
    return said(python(PROGRAMS / f"{name}_train.py", cwd=folder))


def said(run: CompletedProcess[str]) -> list[str]:
    return sorted((run.stdout + run.stderr).splitlines())


def backward_line(name: str) -> str:
    """Where the program has its backward call run, as a title says it."""
    lines = (PROGRAMS / f"{name}_train.py").read_text().splitlines()
    (number,) = (i + 1 for i, line in enumerate(lines) if line.endswith("# backward"))
    return f"backward() at {name}_train.py:{number}, call 1"


def test_check_names_the_unused_layer_and_changes_nothing(name: str, tmp_path: Path) -> None:
    found = gradviz("check", PROGRAMS / f"{name}_train.py", "--json", cwd=tmp_path)
    assert found.returncode == 1, found.stderr
    spare = HOSTS[name].spare
    (finding,) = json.loads(found.stdout)["findings"]
    assert finding["id"] == "unused-parameter" and finding["names"] == [f"{spare}.weight", f"{spare}.bias"]
    source = (PROGRAMS / f"{name}_train.py").read_text().splitlines()
    assert "self.spare = nn.Linear" in source[finding["line"] - 1] and finding["file"].endswith(f"{name}_train.py")
    assert "site-packages" not in found.stdout
    assert sorted(found.stderr.splitlines()) == plain(name, tmp_path)


def test_render_to_the_end_changes_nothing(name: str, tmp_path: Path) -> None:
    run = gradviz("render", PROGRAMS / f"{name}_train.py", "-o", "graph.json", "--continue", cwd=tmp_path)
    assert run.returncode == 0
    printed = sorted((run.stdout.removesuffix("graph.json\n") + run.stderr).splitlines())
    assert printed == plain(name, tmp_path)
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert backward_line(name) in graph["title"]


@pytest.mark.parametrize("command", ["tree", "saved", "flow"])
def test_each_command_reads_the_first_backward(name: str, command: str, tmp_path: Path) -> None:
    run = gradviz(command, PROGRAMS / f"{name}_train.py", *OPTIONS.get(command, ()), cwd=tmp_path)
    assert run.returncode == 0 and "Traceback" not in run.stderr, run.stderr
    assert backward_line(name) in run.stdout
    host = HOSTS[name]
    wanted = {"tree": [host.op, host.leaf], "saved": [host.op], "flow": [host.leaf.rpartition(".")[0]]}
    assert [word for word in wanted[command] if word not in run.stdout] == []


OPTIONS = {"tree": ("--by", "node", "--names", "backward"), "saved": ("--by", "op")}


def test_what_ignite_logs_says_that_the_stop_is_on_purpose(tmp_path: Path) -> None:
    if find_spec("ignite") is None:
        pytest.skip("ignite is not installed: pip install .[test-hosts]")
    run = gradviz("tree", PROGRAMS / "ignite_train.py", cwd=tmp_path)
    assert "due to exception: gradviz stopped the script here on purpose" in run.stderr
