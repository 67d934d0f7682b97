"""Every check on scripts: the example of its documentation triggers it, the nearest script does not, no sample does."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from gradviz.checks.finding import KEYS
from gradviz.checks.pages import EXAMPLE, page
from gradviz.checks.registry import Check, checks
from gradviz.cli.main import cli
from tests.checks.near_misses import NEAR
from tests.command_line import CliRunner
from tests.rows import every_other
from tests.walker.graphs import needs_raw

SAMPLES = Path(__file__).parents[2] / "samples"
EVERY = {one.id: one for one in checks()}


def check(path: Path, *options: str, arguments: tuple[str, ...] = ()) -> tuple[list[dict[str, Any]], int]:
    """The findings of a script, and the exit code. The script runs in this process."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # whatever ran before
        result = CliRunner().invoke(cli, ["check", str(path), "--json", *options, *arguments])
    if torch.distributed.is_initialized():  # the script was stopped before it could do so
        torch.distributed.destroy_process_group()
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout)["findings"], result.exit_code


def written(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


def values(one: Check) -> list[str]:
    return ["--values"] if one.needs_values else []


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, marks=needs_raw if one.reads_saved or one.needs_values else ()) for one in EVERY.values()],
    ids=list(EVERY),
)
def test_the_example_triggers_the_check(one: Check, tmp_path: Path) -> None:
    found, code = check(written(tmp_path, page(one)[EXAMPLE]), *values(one))
    mine = [finding for finding in found if finding["id"] == one.id]
    assert mine and mine[0]["severity"] == one.severity
    assert all(tuple(finding)[: len(KEYS)] == KEYS for finding in found)
    assert mine[0]["summary"] and mine[0]["why"] and mine[0]["fix"]
    assert code == (0 if one.severity == "note" else 1)


@pytest.mark.slow
@pytest.mark.parametrize("one", every_other(EVERY.values()), ids=list(EVERY))
def test_the_nearest_script_does_not(one: Check, tmp_path: Path) -> None:
    found, code = check(written(tmp_path, NEAR[one.id]), *values(one))
    assert one.id not in {finding["id"] for finding in found}
    assert code == 0, found


BROKEN = re.compile(r"  | [,;:]|\b(in|before|after|behind|move|call) [,.;:]", re.IGNORECASE)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["no-graph", "outdated-result", "gradient-not-reset", "doubled-gradient", "no-slope"])
def test_code_whose_text_nobody_has_breaks_no_sentence(id: str, tmp_path: Path) -> None:
    found, _ = check(written(tmp_path, f"exec({page(EVERY[id])[EXAMPLE]!r})"))
    assert id in {one["id"] for one in found}
    for one in found:
        for sentence in (one["summary"], one["why"], one["fix"]):
            assert not BROKEN.search(sentence), sentence


NOTES: dict[str, set[str]] = {"grad_modes.py": {"unused-parameter"}}
"""What is good to know about a sample; none of the others has a finding."""
ARGUMENTS = {"gpt.py": ("--layers", "1"), "llama_size.py": ("--layers", "2"), "resnet.py": ("--depth", "10")}
FAULTY = {"naive_sgd.py"}
HEALTHY = sorted(path.name for path in SAMPLES.glob("*.py") if path.name not in FAULTY)


@pytest.mark.slow
@pytest.mark.parametrize("values", [[], ["--values"]], ids=["", "values"])
@pytest.mark.parametrize("name", every_other(HEALTHY))
def test_no_false_alarm_on_a_sample(
    name: str, values: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ARGUMENTS.get(name, ())
    found, code = check(SAMPLES / name, *values, arguments=("--", *arguments) if arguments else ())
    assert code == 0
    assert {finding["id"] for finding in found} == NOTES.get(name, set())
    assert {finding["severity"] for finding in found} <= {"note"}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("naive_sgd.py", {("nonleaf-parameter", "x1", 39)}),
        ("problems/no_graph.py", {("no-graph", "loss", 25)}),
        *(
            pytest.param(f"problems/{name}.py", {expected}, marks=needs_raw)
            for name, expected in (
                ("inplace_saved", ("stale-saved", "activation", 23)),
                ("second_backward", ("freed-graph", "state", 31)),
            )
        ),
        ("problems/growing_loss.py", {("growing-graph", "total_loss", 33)}),
        pytest.param("problems/nan.py", {("nonfinite", "weight", 29), ("nonfinite", "entropy", 39)}, marks=needs_raw),
    ],
)
def test_a_problem_is_found_at_its_line(script: str, expected: set[tuple[str, str, int | None]]) -> None:
    found, code = check(SAMPLES / script, "--values")
    alarms = [finding for finding in found if finding["severity"] != "note"]
    assert code == 1
    assert {(finding["id"], finding["names"][0]) for finding in alarms} == {(id, name) for id, name, _ in expected}
    for finding in alarms:
        lines = {line for id, name, line in expected if (id, name) == (finding["id"], finding["names"][0])}
        assert any(line is None or f".py:{line}" in finding["where"] for line in lines)


def test_unused_parameters_are_grouped_with_a_verdict_each() -> None:
    found, _ = check(SAMPLES / "problems" / "unused_parameter.py", "--only", "unused-parameter")
    told = {(finding["severity"], finding["names"][0].split(".")[1]): finding["summary"] for finding in found}
    assert set(told) == {("warning", "auxiliary"), ("warning", "forgotten"), ("note", "frozen")}
    assert "do not reach the output" in told["warning", "auxiliary"]
    assert "did not run" in told["warning", "forgotten"] and "frozen" in told["note", "frozen"]


def test_a_script_run_twice_in_one_process_is_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, page(EVERY["unused-parameter"])[EXAMPLE])
    assert check(path) == check(path)
    assert "__main__" in sys.modules
