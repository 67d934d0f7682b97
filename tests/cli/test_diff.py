"""`gradviz diff`: two targets, two calls, two sets of arguments; exit codes; text and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import REPOSITORY, TRAINING, script

CONTROL_FLOW = REPOSITORY / "samples" / "control_flow.py"


def test_another_branch_of_one_script(gradviz: Gradviz) -> None:
    result = gradviz("diff", CONTROL_FLOW, "--json", "--", "--", "--negative", code=1)
    data = json.loads(result.stdout)
    assert "ExpBackward0" in [node["op"] for node in data["added"]]
    assert "ExpBackward0" not in [node["op"] for node in data["removed"]]
    assert not data["empty"]
    text = gradviz("diff", CONTROL_FLOW, "--", "--positive", "--", "--negative", code=1).stdout
    assert "  exp  (3,) float32" in text and "control_flow.py:" in text


def test_equal_graphs_exit_0(gradviz: Gradviz, tmp_path: Path) -> None:
    assert "no difference" in gradviz("diff", CONTROL_FLOW, CONTROL_FLOW).stdout
    assert "no difference" in gradviz("diff", script(tmp_path, TRAINING), "--at", 1, "--at", 2).stdout


def test_two_calls_are_read_in_one_run(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, "open('runs', 'a').write('x')\n" + TRAINING)
    data = json.loads(gradviz("diff", path, "--at", 3, "--at", 1, "--json").stdout)
    assert (data["before"][-6:], data["after"][-6:]) == ("call 3", "call 1")
    assert (tmp_path / "runs").read_text() == "x"
    assert (
        "called backward() 3 times, so there is no call 4" in gradviz("diff", path, "--at", 1, "--at", 4, code=2).output
    )
    assert "no difference" in gradviz("diff", path, "--at", 2, "--at", 2).stdout


def test_a_failure_between_two_calls_is_the_scripts(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING.replace("train(3)", "train(1)\n    1 / 0"))
    assert "ZeroDivisionError" in gradviz("diff", path, "--at", 1, "--at", 2, code=3).stderr


def test_saved_graphs_and_scripts_mix(gradviz: Gradviz) -> None:
    gradviz("render", CONTROL_FLOW, "-o", "plain.json")
    assert "no difference" in gradviz("diff", "plain.json", "plain.json").stdout
    assert "  neg  " in gradviz("diff", "plain.json", CONTROL_FLOW, "--", "--negative", code=1).stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [((), "needs --at twice"), (("--at", 1), "needs --at twice"), (("--at", 1, "--at", 2, "--at", 3), "once for both")],
)
def test_wrong_use(gradviz: Gradviz, arguments: tuple[object, ...], told: str) -> None:
    assert told in gradviz("diff", CONTROL_FLOW, *arguments, code=2).output


def test_a_difference_is_drawn_as_a_page(gradviz: Gradviz) -> None:
    gradviz("diff", "-o", "diff.html", CONTROL_FLOW, "--", "--positive", "--", "--negative", code=1)
    assert "<html" in Path("diff.html").read_text(encoding="utf-8")
    assert "should be .html or .htm" in gradviz("diff", CONTROL_FLOW, CONTROL_FLOW, "-o", "diff.svg", code=2).output
