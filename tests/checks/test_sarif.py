"""`gradviz check --sarif`: what the schema of SARIF 2.1.0 asks for, and the lines that findings are about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradviz.cli.main import cli
from tests.checks.test_one_cause import UNUSED
from tests.checks.test_scripts import check, written
from tests.command_line import CliRunner

REQUIRED = {
    "log": {"version", "runs"},
    "run": {"tool"},
    "tool": {"driver"},
    "driver": {"name"},
    "rule": {"id"},
    "invocation": {"executionSuccessful"},
    "notification": {"message"},
    "result": {"message"},
    "location": {"physicalLocation"},
    "physicalLocation": {"artifactLocation"},
    "region": {"startLine"},
    "message": {"text"},
}
"""Properties without which the schema refuses an object (or refuses what is here without them)."""
ALLOWED = {
    "log": {"$schema", "version", "runs"},
    "run": {"tool", "columnKind", "invocations", "results"},
    "tool": {"driver"},
    "driver": {"name", "version", "rules"},
    "rule": {"id", "shortDescription", "fullDescription", "help", "defaultConfiguration"},
    "invocation": {"executionSuccessful", "toolExecutionNotifications"},
    "notification": {"level", "message"},
    "result": {
        "ruleId", "ruleIndex", "level", "message", "locations", "relatedLocations", "partialFingerprints", "properties",
    },
    "location": {"physicalLocation", "message"},
    "physicalLocation": {"artifactLocation", "region"},
    "region": {"startLine", "startColumn", "endColumn", "snippet"},
    "message": {"text", "markdown"},
}  # fmt: skip
"""The schema allows no other property in an object than its own; these are the ones of its own that are used."""


def log(path: Path) -> dict[str, Any]:
    return json.loads(CliRunner().invoke(cli, ["check", str(path), "--sarif"]).stdout)


def objects(made: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a log, each with what it is."""
    yield "log", made
    for run in made["runs"]:
        yield from [("run", run), ("tool", run["tool"]), ("driver", run["tool"]["driver"])]
        for rule in run["tool"]["driver"]["rules"]:
            yield "rule", rule
            yield from (("message", rule[key]) for key in ("shortDescription", "fullDescription", "help"))
        for invocation in run["invocations"]:
            yield "invocation", invocation
            yield from (("notification", one) for one in invocation.get("toolExecutionNotifications", []))
        for result in run["results"]:
            yield from [("result", result), ("message", result["message"])]
            for location in [*result.get("locations", []), *result.get("relatedLocations", [])]:
                physical = location["physicalLocation"]
                yield from [("location", location), ("physicalLocation", physical), ("region", physical["region"])]


SCRIPTS = {
    "one finding": UNUSED,
    "an exception": UNUSED.replace("loss.backward()", "loss = loss.repeat(2)\nloss.backward()"),
    "an exception that nobody explains": "raise ValueError('no')",
    "nothing": UNUSED.replace('net["a"](', 'net["b"](torch.ones(1, 2)).sum() + net["a"]('),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_log_has_what_the_schema_asks_for_and_nothing_else(script: str, tmp_path: Path) -> None:
    made = log(written(tmp_path, script))
    assert made["version"] == "2.1.0" and len(made["runs"]) == 1
    for kind, one in objects(made):
        assert REQUIRED[kind] <= set(one) <= ALLOWED[kind], kind
    (run,) = made["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(
        rule["help"]["text"] and rule["defaultConfiguration"]["level"] in ("error", "warning", "note") for rule in rules
    )
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] == ("toolExecutionNotifications" not in invocation)


@pytest.mark.parametrize(("name", "failed"), [("one finding", False), ("an exception that nobody explains", True)])
def test_a_script_that_failed_is_told_apart(name: str, failed: bool, tmp_path: Path) -> None:
    (invocation,) = log(written(tmp_path, SCRIPTS[name]))["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is not failed
    assert ("ValueError: no" in json.dumps(invocation)) == failed


def test_results_are_the_findings_at_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    path = written(
        folder, "import torch\nx = torch.ones(1, requires_grad=True).exp()\n\nloss = x.detach() * 2\nloss.backward()"
    )
    found, _ = check(path)
    (result,) = log(path)["runs"][0]["results"]
    assert [result["ruleId"]] == [one["id"] for one in found] == ["no-graph"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20models/script.py"
    region = place["region"]
    assert (region["startLine"], region["snippet"]["text"]) == (4, "loss = x.detach() * 2")
    assert region["snippet"]["text"][region["startColumn"] - 1 : region["endColumn"] - 1] == "x.detach()"
    monkeypatch.chdir(folder)
    (moved,) = log(path)["runs"][0]["results"]
    assert moved["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "script.py"
    assert moved["partialFingerprints"] == result["partialFingerprints"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (outside,) = log(path)["runs"][0]["results"]
    assert outside["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == path.as_uri()


def test_a_finding_says_its_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    path = written(tmp_path, UNUSED)
    assert [one["rank"] for one in check(path)[0]] == [0]
    assert "1. warning on rank 0: 2 parameters" in CliRunner().invoke(cli, ["check", str(path)]).stdout
    assert log(path)["runs"][0]["results"][0]["properties"]["rank"] == 0
