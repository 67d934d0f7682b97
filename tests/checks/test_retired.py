"""Checks that are retired: their ids are taken with a note, and what they spoke of is left alone."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import gradviz
from gradviz.checks.registry import checks
from gradviz.cli.main import cli
from gradviz.errors import FormatError
from gradviz.retired import CHECKS
from tests.checks.advice import alarms
from tests.checks.left_alone import LEFT_ALONE
from tests.checks.test_scripts import written
from tests.command_line import CliRunner

STEP = """
import torch
model = torch.nn.Linear(3, 1)
model(torch.ones(2, 3)).sum().backward()
"""


@pytest.mark.parametrize("id", LEFT_ALONE)
def test_the_script_of_a_retired_check_is_left_alone(id: str, tmp_path: Path) -> None:
    assert not alarms(LEFT_ALONE[id], tmp_path)


@pytest.mark.parametrize("written_to", ["parameter", "parameter.data"])
def test_an_update_by_hand_is_left_alone(written_to: str, tmp_path: Path) -> None:
    script = f"""
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    {written_to} -= optimizer.param_groups[0]["lr"] * parameter.grad
    """
    assert not alarms(script, tmp_path)


def test_no_check_that_is_there_is_retired_and_successors_are_there() -> None:
    there = {one.id for one in checks()}
    assert there.isdisjoint(CHECKS)
    assert {successor for successor in CHECKS.values() if successor} <= there


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ("--ignore untied", 0, "untied is retired"),
        ("--only untied --only no-graph", 0, "untied is retired"),
        ("--ignore zero-gradient", 0, "gradviz flow train.py shows the gradient of each module."),
        ("--ignore ranks-differ", 0, "gradviz merge net.rank*.json compares the graph files of ranks."),
        ("--ignore eval-while-training", 0, "eval-while-training is part of wrong-mode now"),
        ("--only untied", 2, "untied is retired"),
        ("--only eval-while-training --only alias", 2, "eval-while-training is part of wrong-mode now"),
    ],
)
def test_a_retired_id_is_taken_with_a_note(options: str, code: int, told: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["check", str(written(tmp_path, STEP)), *options.split()])
    assert result.exit_code == code
    assert " ".join(result.stderr.split()).count(told) == 1


def test_the_page_of_a_retired_check_is_that_of_its_successor() -> None:
    merged = CliRunner().invoke(cli, ["check", "--explain", "eval-while-training"])
    assert merged.exit_code == 0 and merged.stdout.startswith("wrong-mode")
    assert "gradviz check --explain wrong-mode" in merged.stderr
    gone = CliRunner().invoke(cli, ["check", "--explain", "alias"])
    assert (gone.exit_code, gone.stdout) == (0, "") and "alias is retired" in gone.stderr


def test_in_python_the_note_is_a_warning_at_the_line_of_the_call() -> None:
    loss = torch.nn.Linear(3, 1)(torch.ones(2, 3)).sum()
    with pytest.warns(UserWarning, match="large-saved is retired") as told:
        assert not gradviz.check(loss, ignore=["large-saved"])
    assert told[0].filename == __file__
    with warnings.catch_warnings(), pytest.raises(FormatError, match="large-saved is retired"):
        warnings.simplefilter("error")
        gradviz.check(loss, only=["large-saved"])
