"""Ctrl-C during every stage of a run: exit code 130, no traceback, no file, the old file unchanged, no process left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from gradviz.cli.main import cli
from gradviz.draw.output import save
from tests.builders import chain
from tests.cli.scripts import environment, python, script
from tests.command_line import CliRunner
from tests.rows import every_other

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs signals and process groups")]

# Forks a process for each line of JSON, which runs the command line and is interrupted in the middle of a stage; answers with
# its exit code. The modules it is called with are imported only once, and each run is a process with an end of its own.
SERVER = """
import importlib, json, os, signal, sys, threading, time
from gradviz import stages
from gradviz.cli.main import main

def begin(folder, environment, whom, wanted, least, arguments):
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    for number, name in enumerate((os.devnull, "stdout.txt", "stderr.txt")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    sys.argv = ["gradviz", *arguments]
    signal.alarm(60)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
    stages._open.set(Stages(whom, wanted, least))

class Stages(list):
    def __init__(self, whom, wanted, least):
        self.whom, self.wanted, self.least = whom, wanted, least

    def append(self, stage):
        super().append(stage)
        if self.wanted != f"{stage.name} {stage.unit or stage.doing.split(' ')[0]}".strip():
            return
        if stage.doing.startswith("waiting"):
            threading.Timer(0.3, self.interrupt, [stage]).start()  # let the child start
        else:  # in this thread, so that no stage is over before another thread gets to run
            sys.setprofile(lambda frame, event, argument: stage.count() < self.least or self.interrupt(stage))

    def interrupt(self, stage):
        sys.setprofile(None)
        open("interrupted.txt", "w").write(stage.name if stage in self else "too late")
        os.killpg(0, signal.SIGINT) if self.whom == "group" else os.kill(os.getpid(), signal.SIGINT)

for module in sys.argv[1:]:
    importlib.import_module(module)
for line in sys.stdin:
    child = os.fork()
    if not child:
        begin(**json.loads(line))
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

FORWARD = """
import os, signal, torch
class Net(torch.nn.Module):
    def forward(self, x):
        for i in range(1000):
            x = x * 1.01
            if i == 500:
                open("interrupted.txt", "w").write("script")
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
    """Where to interrupt: in which stage and of which unit, after how many of them; and what to run."""

    stage: str
    least: int
    target: str
    options: tuple[str, ...]
    output: str


SAVED = {
    "layered": Case("layout", 3, "chain.json", ("--depth", "all"), "a.svg"),
    "png": Case("paint waiting", 0, "few.json", (), "a.png"),
    "pdf": Case("paint waiting", 0, "few.json", (), "a.pdf"),
    "svg": Case("write boxes", 100, "chain.json", ("--depth", "all"), "a.svg"),
    "json": Case("write nodes", 100, "chain.json", (), "a.json"),
    "fold": Case("fold", 0, "chain.json", (), "a.svg"),
    "draw": Case("draw nodes", 100, "chain.json", ("--depth", "all"), "a.svg"),
    "load": Case("load nodes", 100, "chain.json", (), "a.svg"),
    "dot source": Case("write boxes", 100, "chain.json", ("--depth", "all"), "a.dot"),
    "txt": Case("write rows", 100, "chain.json", (), "a.txt"),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of saved graphs, and a `dot` that paints for minutes, with a process of its own."""
    folder = tmp_path_factory.mktemp("graphs")
    save(chain(3000), folder / "chain.json")
    save(chain(5), folder / "few.json")
    dot = folder / "dot"
    dot.write_text("#!/bin/sh\nsleep 100\necho done\n")
    dot.chmod(0o755)
    return folder


@contextmanager
def server(*modules: str) -> Iterator[subprocess.Popen[str]]:
    """What forks the runs."""
    command = [sys.executable, "-c", SERVER, "gradviz.cli.render", "gradviz.draw.svg", *modules]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


class Runs:
    """Interrupts runs in one folder and looks at what they leave behind."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server, self._folder = server, folder
        self.environment = {"GRADVIZ_TEST_INTERRUPT": str(folder)}  # also of whatever the run starts

    def interrupt(self, case: Case, target: object, whom: str, *, old: bool) -> None:
        """Interrupt one run, and check everything that must hold then. `old`: there is a file to be written over."""
        kept = {path.name: path.read_bytes() for path in self._folder.iterdir()}
        if old:
            kept[case.output] = b"what was there before"
            (self._folder / case.output).write_bytes(kept[case.output])
        replaced = ["--force"] if old else []  # it is not of gradviz
        code = self._run(whom, case, ["render", str(target), *case.options, *replaced, "-o", case.output])
        left = {path.name: path.read_bytes() for path in self._folder.iterdir() if path.name != "__pycache__"}
        said, errors, stage = (left.pop(f"{name}.txt", b"").decode() for name in ("stdout", "stderr", "interrupted"))
        assert (code, said, errors) == (130, "", "Interrupted; nothing was written.\n")
        assert stage == case.stage.split()[0]
        assert left == kept
        deadline = time.monotonic() + 2  # a killed process is gone a moment later
        while self._processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self._processes() == []

    def _run(self, whom: str, case: Case, arguments: list[str]) -> int:
        assert self._server.stdin is not None and self._server.stdout is not None
        wanted = {"whom": whom, "wanted": case.stage, "least": case.least, "arguments": arguments}
        line = json.dumps({"folder": str(self._folder), "environment": self.environment, **wanted})
        self._server.stdin.write(f"{line}\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def _processes(self) -> list[str]:
        """Command lines of processes that the run started. Only Linux lets us look."""
        (mark,) = [f"{name}={value}".encode() for name, value in self.environment.items() if "TEST" in name]
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return found


@pytest.fixture(scope="module")
def without_torch() -> Iterator[subprocess.Popen[str]]:
    with server("gradviz.layout.layered") as process:
        yield process


@pytest.fixture(scope="module")
def with_torch() -> Iterator[subprocess.Popen[str]]:
    with server("gradviz.walker.walk") as process:
        yield process


@pytest.mark.parametrize(
    ("name", "whom"),
    every_other(
        [
            *((name, "group") for name in SAVED),
            (next(name for name in SAVED if "paint" not in SAVED[name].stage), "parent"),
        ]
    ),
)
def test_while_a_saved_graph_is_drawn(
    name: str, whom: str, graphs: Path, tmp_path: Path, without_torch: subprocess.Popen[str]
) -> None:
    """The group is what a terminal interrupts."""
    case, runs = SAVED[name], Runs(without_torch, tmp_path)
    if case.stage.startswith("paint"):
        runs.environment |= {"PATH": f"{graphs}{os.pathsep}{os.environ['PATH']}", "GRADVIZ_GRAPHVIZ": "system"}
    runs.interrupt(case, graphs / case.target, whom, old=whom == "group")


@pytest.mark.parametrize(
    ("stage", "text", "whom"),
    every_other(
        [
            ("script", FORWARD, "group"),
            ("script", FORWARD, "parent"),
            ("walk", CHAIN, "group"),
            ("read", CHAIN, "group"),
        ]
    ),
)
def test_while_a_script_runs_and_is_read(
    stage: str, text: str, whom: str, tmp_path: Path, with_torch: subprocess.Popen[str]
) -> None:
    """The script's own `except KeyboardInterrupt` sees an interrupt of its own code, and none of ours."""
    script(tmp_path, f"WHOM = {whom!r}\n{text}")
    runs = Runs(with_torch, tmp_path)
    runs.interrupt(Case(f"{stage} nodes", 100, "", (), "a.svg"), "script.py", whom, old=stage != "read")


def test_while_a_class_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import is a good part of a short run. Python up to 3.11 turns an interrupt there into a RuntimeError."""

    class Interrupted:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def imported(name: str) -> None:
        type("Class", (), {"interrupted": Interrupted()})

    monkeypatch.setattr("gradviz.cli.main.importlib.import_module", imported)
    result = CliRunner().invoke(cli, ["render", "script.py"])
    assert (result.exit_code, result.output) == (130, "Interrupted; nothing was written.\n")


BEHIND = """
from gradviz.cli import main
invoke = main.Gradviz.invoke

def and_then_the_key(group, context):
    invoke(group, context)
    raise KeyboardInterrupt

main.Gradviz.invoke = and_then_the_key
main.main()
"""


def test_an_interrupt_just_behind_a_command(tmp_path: Path) -> None:
    save(chain(3), tmp_path / "graph.json")
    done = python("-c", BEHIND, "tree", "graph.json", cwd=tmp_path)
    assert done.returncode == 130 and "Interrupted" in done.stderr and "Aborted" not in done.stderr


WATCHED = """
import os, signal, torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(100):
    if step == {at}:
        os.kill(os.getpid(), signal.SIGINT)
    loss = net(torch.ones(2, 3)).square().mean()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("at", [0, 50])
def test_check_tells_what_it_has_seen(at: int, tmp_path: Path) -> None:
    script(tmp_path, WATCHED.format(at=at))
    done = python("-m", "gradviz", "check", "script.py", cwd=tmp_path)
    if at:
        assert done.returncode == 1 and "[gradient-not-reset]" in done.stdout and "until Ctrl-C." in done.stdout
        assert "47 later backward calls" in " ".join(done.stdout.split()) and not done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_check_tells_nothing_where_a_number_of_calls_was_asked_for(tmp_path: Path) -> None:
    script(tmp_path, WATCHED.format(at=50))
    done = python("-m", "gradviz", "check", "script.py", "--steps", "90", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
