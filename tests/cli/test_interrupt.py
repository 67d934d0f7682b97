"""Ctrl-C during every stage of a run: exit code 130, no traceback, no file, the old file unchanged, no process left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gradviz.graph import Edge, Graph, Node
from gradviz.render.output import save
from tests.builders import chain
from tests.cli.scripts import environment, script

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals and process groups")

OLD = b"what was there before"
MARKER = "GRADVIZ_TEST_INTERRUPT"

# Runs the command line and interrupts it in the middle of a stage: `DRIVER group|parent STAGE LEAST ARGUMENTS`.
DRIVER = """
import os, signal, sys, threading, time
from gradviz import stages
from gradviz.cli.main import main

whom, wanted, least = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.argv = ["gradviz", *sys.argv[4:]]

def interrupt(stage):
    while stage.count() < least:
        time.sleep(0.001)
    if stage.doing.startswith("waiting"):
        time.sleep(0.3)  # let the child start
    open("interrupted", "w").write(stage.name if stage in open_stages else "too late")
    send()

def send():
    os.killpg(0, signal.SIGINT) if whom == "group" else os.kill(os.getpid(), signal.SIGINT)

class Stages(list):
    def append(self, stage):
        super().append(stage)
        if wanted == f"{stage.name} {stage.unit or stage.doing.split(' ')[0]}".strip():
            threading.Thread(target=interrupt, args=(stage,), daemon=True).start()

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
sys.setswitchinterval(0.0005)
open_stages = Stages()
stages._open.set(open_stages)
main()
"""

FORWARD = """
import os, signal, __main__, torch
class Net(torch.nn.Module):
    def forward(self, x):
        for i in range(1000):
            x = x * 1.01
            if i == 500:
                open("interrupted", "w").write("script")
                os.killpg(0, signal.SIGINT) if WHOM == "group" else os.kill(os.getpid(), signal.SIGINT)
        return x
Net()(torch.ones(3, requires_grad=True)).sum().backward()
"""

CHAIN = """
import torch
y = torch.ones(3, requires_grad=True)
for _ in range(20_000):
    y = y * 1.0001
try:
    y.sum().backward()
except KeyboardInterrupt:
    open("caught", "w").close()  # as many training loops do
"""


class Case(NamedTuple):
    """Where to interrupt: the stage and its unit, after how many of them."""

    stage: str
    least: int
    target: str
    arguments: tuple[str, ...]
    output: str


CASES = {
    "layered": Case("layout", 3, "chain.json", ("--depth", "all", "--layout", "layered"), "a.svg"),
    "dot": Case("layout waiting", 0, "dense.json", ("--depth", "all", "--layout", "dot"), "a.svg"),
    "png": Case("paint waiting", 0, "few.json", ("--layout", "layered"), "a.png"),
    "pdf": Case("paint waiting", 0, "few.json", ("--layout", "layered"), "a.pdf"),
    "draw": Case("draw nodes", 100, "chain.json", ("--depth", "all"), "a.svg"),
    "fold": Case("fold", 0, "chain.json", (), "a.svg"),
    "svg": Case("write boxes", 100, "chain.json", ("--depth", "all"), "a.svg"),
    "json": Case("write nodes", 100, "chain.json", (), "a.json"),
    "dot source": Case("write boxes", 100, "chain.json", ("--depth", "all"), "a.dot"),
    "txt": Case("write rows", 100, "chain.json", ("--by", "node"), "a.txt"),
    "load": Case("load nodes", 100, "chain.json", (), "a.svg"),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of saved graphs, and a `neato` that paints for minutes, with a process of its own."""
    folder = tmp_path_factory.mktemp("graphs")
    save(chain(5000), folder / "chain.json")
    save(chain(5), folder / "few.json")
    save(dense(200), folder / "dense.json")
    neato = folder / "neato"
    neato.write_text("#!/bin/sh\nsleep 100\necho done\n")
    neato.chmod(0o755)
    return folder


def dense(size: int) -> Graph:
    """Every node uses all later ones: dot works on it for minutes."""
    nodes = tuple(Node(i, "AddBackward0") for i in range(size))
    return Graph(nodes, tuple(Edge(i, j, 0, j - i - 1) for i in range(size) for j in range(i + 1, size)))


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In the environment of everything that the test starts."""
    monkeypatch.setenv(MARKER, str(tmp_path))
    yield f"{MARKER}={tmp_path}"


def left_over(marker: str) -> list[str]:
    """Processes whose environment has the marker, other than this one. Only Linux lets us look."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and marker.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def interrupted(folder: Path, whom: str, case: Case, target: object) -> subprocess.CompletedProcess[str]:
    """Run the command line until it is interrupted."""
    command = ["render", target, *case.arguments, "-o", case.output]
    return subprocess.run(
        [sys.executable, "-c", DRIVER, whom, case.stage, str(case.least), *map(str, command)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )


def check(
    folder: Path, done: subprocess.CompletedProcess[str], stage: str, old: bool, output: str, marker: str
) -> None:
    """What must hold after an interrupted run."""
    assert done.returncode == 130, done.stderr
    assert done.stdout == "" and done.stderr == "Interrupted; nothing was written.\n"
    assert (folder / "interrupted").read_text() == stage
    expected = {"interrupted", *([output] if old else [])}
    assert {path.name for path in folder.iterdir() if path.suffix != ".py"} == expected
    assert not old or (folder / output).read_bytes() == OLD
    deadline = time.monotonic() + 2  # a killed process is gone a moment later
    while left_over(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left_over(marker) == []


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("whom", ["group", "parent"])
def test_while_a_saved_graph_is_drawn(
    name: str, whom: str, graphs: Path, tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`group` is what a terminal does. One of the two has a file of that name already."""
    case, old = CASES[name], whom == "group"
    if old:
        (tmp_path / case.output).write_bytes(OLD)
    if case.stage.startswith("paint"):
        monkeypatch.setenv("PATH", f"{graphs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("GRADVIZ_GRAPHVIZ", "system")
    done = interrupted(tmp_path, whom, case, graphs / case.target)
    check(tmp_path, done, case.stage.split()[0], old, case.output, marker)


@pytest.mark.parametrize(
    ("stage", "whom", "text"),
    [
        ("script", "group", FORWARD),
        ("script", "parent", FORWARD),
        ("walk", "group", CHAIN),
        ("walk", "parent", CHAIN),
        ("read", "group", CHAIN),
    ],
)
def test_while_a_script_runs_and_is_read(stage: str, whom: str, text: str, tmp_path: Path, marker: str) -> None:
    """The script's own `except KeyboardInterrupt` sees an interrupt of its own code, not one of ours."""
    script(tmp_path, f"WHOM = {whom!r}\n{text}")
    (tmp_path / "a.svg").write_bytes(OLD)
    done = interrupted(tmp_path, whom, Case(f"{stage} nodes", 100, "", (), "a.svg"), "script.py")
    check(tmp_path, done, stage, True, "a.svg", marker)
