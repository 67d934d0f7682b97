"""Odd scripts under odd commands: a result, findings, the script's own traceback, or one line of ours. Never a traceback of ours.

Exit codes: 0 done, 1 findings, 2 one line of ours, 3 the script's own failure.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

from gradviz.cli.main import cli
from tests.attack.budget import BOUND, SECONDS, SEED, report
from tests.cli.scripts import script
from tests.command_line import CliRunner

pytestmark = pytest.mark.long


def _scripts() -> dict[str, str]:
    text = (Path(__file__).parent / "odd_scripts.txt").read_text(encoding="utf-8").replace("@NUL@", "\0")
    parts = (part.partition("\n") for part in text.split("\n== ")[1:])
    return {name: body for name, _, body in parts}


SCRIPTS = _scripts()
COMMANDS = (
    ("tree",),
    ("check",),
    ("check", "--values"),
    ("flow",),
    ("flow", "--run-custom", "--by", "edge"),
    ("paths", "--to", "w", "--run-custom"),
    ("saved",),
    ("tensors",),
    ("render", "-o", "graph.svg"),
    ("render", "-o", "graph.json", "--color", "grad"),
    ("diff", "--at", "1", "--at", "2"),
)


def _chosen() -> list[tuple[str, tuple[str, ...]]]:
    """Two commands for each script, or all of them when there is time."""
    chance = random.Random(SEED)
    many = len(COMMANDS) if SECONDS > 60 else 2
    return [(name, command) for name in SCRIPTS for command in chance.sample(COMMANDS, many)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of threads that scripts leave
def test_odd_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    for name, command in _chosen():
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        monkeypatch.chdir(folder)
        path = script(folder, SCRIPTS[name])
        _attack(f"{name}: {' '.join(command)}", [command[0], str(path), *command[1:]])
        assert {one.name for one in folder.iterdir()} <= {"script.py", "graph.svg", "graph.json", "__pycache__"}, name
    report(request, "odd scripts", len(_chosen()))


def _put_back(limit: int) -> None:
    """Undo what scripts set for their whole process."""
    sys.setrecursionlimit(limit)
    torch.set_grad_enabled(True)
    torch.set_default_device(None)


def _attack(what: str, arguments: list[str]) -> None:
    began = time.process_time()
    limit = sys.getrecursionlimit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(cli, arguments, prog_name="gradviz")
    _put_back(limit)
    assert isinstance(result.exception, SystemExit | None), f"{what}: {result.exception!r}"
    assert result.exit_code in (0, 1, 2, 3, 7), f"{what}: exit code {result.exit_code}\n{result.output}"
    if result.exit_code == 2:
        assert "Error: " in result.stderr and "Traceback" not in result.stderr, f"{what}: {result.stderr}"
    assert time.process_time() - began < BOUND, what
