"""The group of commands: help, unknown names, how errors end."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

import gradviz as package
from gradviz.cli.main import COMMANDS, cli
from gradviz.cli.target import TargetCommand
from tests.cli.conftest import Gradviz
from tests.cli.scripts import TRAINING, script
from tests.command_line import CliRunner


@pytest.mark.slow
def test_help_names_every_command_with_one_whole_line(gradviz: Gradviz) -> None:
    said = gradviz("--help").stdout
    for name in COMMANDS:
        line = next(line for line in said.splitlines() if line.strip().startswith(f"{name} "))
        assert not line.endswith("...")
    assert "Exit codes" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command(gradviz: Gradviz, name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.name == name
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, f"{name} {parameter.name} has no help"
    if isinstance(command, TargetCommand):
        assert "[-- ARGUMENTS OF THE SCRIPT]" in gradviz(name, "--help").stdout.replace("\n" + " " * 22, " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rendr", "a.py"), "there is no command 'rendr'. Did you mean render?"),
        (("graph.json",), "gradviz tree graph.json"),
        (("tree",), "Missing argument 'TARGET'"),
        (("tree", "a.py", "b"), "unexpected extra argument (b)"),
        (("tree", "a.py", "--at", "0"), "0 is not in the range"),
        (("tree", "a.py", "--nonsense"), "--nonsense"),
    ],
)
def test_wrong_usage(gradviz: Gradviz, arguments: tuple[str, ...], said: str) -> None:
    result = gradviz(*arguments, code=2)
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("before", [(), ("-m",)])
def test_a_script_alone_is_checked_and_the_other_commands_are_named(
    gradviz: Gradviz, tmp_path: Path, before: tuple[str, ...]
) -> None:
    path = script(tmp_path, TRAINING)
    word = "script" if before else path
    alone = gradviz(*before, word, "--steps", 1).stdout.splitlines()
    assert alone[:-1] == gradviz("check", *before, word, "--steps", 1).stdout.splitlines()
    assert "gradviz --help" in alone[-1] and "render" in alone[-1]
    assert json.loads(gradviz(*before, word, "--steps", 1, "--json").stdout) == {"findings": []}


def test_a_bug_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path, TRAINING)
    monkeypatch.setattr("gradviz.cli.render.pieces", lambda *graph: 1 // 0)
    result = CliRunner().invoke(cli, ["tree", str(path)])
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import sys; print('usage', file=sys.stderr); sys.exit(2)",
            "usage\nError: script.py exited with code 2 before",
        ),
        ("import sys; sys.exit('no data')", "no data\nError: script.py exited with code 1 before"),
        (
            "import argparse; argparse.ArgumentParser().parse_args(['--no'])",
            "exited with code 2 before gradviz could read a graph",
        ),
    ],
)
def test_a_script_that_exits_early(gradviz: Gradviz, tmp_path: Path, code: str, said: str) -> None:
    assert said in gradviz("tree", script(tmp_path, code + "\n"), code=3).stderr


@pytest.mark.parametrize("option", [("--at", "2"), ("--continue",), ("--", "x")])
def test_a_saved_graph_runs_no_script(gradviz: Gradviz, tmp_path: Path, option: tuple[str, ...]) -> None:
    gradviz("render", script(tmp_path, TRAINING), "-o", "net.json")
    said = gradviz("tree", "net.json", *option, code=2).stderr
    assert "is a saved graph, which runs no script: leave out" in said


def test_the_version_is_what_a_report_of_a_fault_needs() -> None:
    lines = CliRunner().invoke(cli, ["--version"]).stdout.splitlines()
    assert lines[0] == f"gradviz {package.__version__}"
    assert [line.split()[0] for line in lines[1:]] == ["python", "torch", "graphviz"]
