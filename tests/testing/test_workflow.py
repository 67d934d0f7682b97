"""The workflow that docs/testing.md offers: its commands run here, in a repository of their own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.blocks import ROOT

yaml = pytest.importorskip("yaml")
FILE = ROOT / "docs" / "graphs-workflow.yml"
TEST = """
import torch

def test_graph(gradviz_graph):
    x = torch.ones(3, requires_grad=True)
    gradviz_graph.matches(torch.{op}(x).sum())

def test_that_fails():
    assert "{op}" == "exp"
"""


def steps() -> list[dict[str, Any]]:
    return list(yaml.safe_load(FILE.read_text(encoding="utf-8"))["jobs"]["graphs"]["steps"])


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As GitHub's bash does, with the programs of this environment."""
    here = re.sub(r"\b(pytest|gradviz)(?= (?:tests|check))", rf"{sys.executable} -m \1", command)
    return subprocess.run(["bash", "-e", "-c", here], cwd=folder, capture_output=True, text=True, timeout=120)


def test_it_may_upload_findings_and_says_which_file() -> None:
    workflow = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
    assert workflow[True] == "pull_request"  # `on` is true in the YAML that this parser reads
    uploads = {step["uses"].split("@")[0]: step["with"] for step in steps() if "with" in step}
    written = {path for step in steps() for path in re.findall(r"> (\S+)", step.get("run", ""))}
    assert written == {
        uploads["actions/upload-artifact"]["path"],
        uploads["github/codeql-action/upload-sarif"]["sarif_file"],
    }
    assert all("@v" in step["uses"] for step in steps() if "uses" in step)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("git") and shutil.which("bash")), reason="needs git and bash")
def test_a_changed_graph_fails_and_its_difference_applies(tmp_path: Path) -> None:
    compare, update, check = (step["run"] for step in steps() if "run" in step and "pip" not in step["run"])
    shutil.copy(ROOT / "samples" / "problems" / "growing_loss.py", tmp_path / "train.py")
    test = tmp_path / "tests" / "test_it.py"
    test.parent.mkdir()
    test.write_text(TEST.format(op="exp"), encoding="utf-8")
    run("PYTHONDONTWRITEBYTECODE=1 pytest tests --gradviz-update", tmp_path)
    who = "git -c user.name=a -c user.email=a@b"
    run(f"git init -q && git add . && {who} commit -qm first", tmp_path)
    assert run(compare, tmp_path).returncode == 0

    test.write_text(TEST.format(op="sin"), encoding="utf-8")
    run(f"{who} commit -qam second", tmp_path)
    assert run(compare, tmp_path).returncode == 1
    assert run(update, tmp_path).returncode == 0
    difference = (tmp_path / "graphs.diff").read_text(encoding="utf-8")
    assert any(line.startswith("+") and "Sin" in line for line in difference.splitlines())
    assert re.findall(r"^diff --git a/(\S+)", difference, re.MULTILINE) == [
        "tests/gradviz_graphs/test_it/test_graph.txt"
    ]
    assert run("git checkout -q tests && git apply graphs.diff", tmp_path).returncode == 0
    assert "1 failed, 1 passed" in run(compare, tmp_path).stdout

    assert run(check, tmp_path).returncode == 0
    (result,) = json.loads((tmp_path / "gradviz.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], place["artifactLocation"]["uri"]) == ("growing-graph", "train.py")
