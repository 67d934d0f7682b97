"""The benchmark command runs, measures what is there and names what is not. Its times are not judged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parent.parent
BENCHMARKS = REPOSITORY / "benchmarks"


@pytest.mark.long
def test_every_tool_is_measured_or_named_as_missing(tmp_path: Path) -> None:
    report = tmp_path / "numbers.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--small", "--only", "LSTM", "--json", str(report)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results = {one["tool"]: one for one in json.loads(report.read_text())["results"]}
    assert list(results) == [
        "bare walk",
        "gradviz, every op",
        "gradviz, folded",
        "torchviz",
        "torchview",
        "torchlens",
        "torchvista",
    ]
    for tool in ("bare walk", "gradviz, every op", "gradviz, folded"):
        assert "error" not in results[tool], results[tool]
    for tool, one in results.items():
        assert tool in done.stdout
        if one.get("error") == "not installed":
            assert "not installed" in done.stdout
        elif "error" not in one:
            assert one["total"] == pytest.approx(one["capture"] + one["draw"])
            assert (one["bytes"] > 1000) is (tool != "bare walk")


def test_every_benchmark_is_explained() -> None:
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    parts = {path.stem for path in BENCHMARKS.glob("*.py")} - {
        "__init__",
        "__main__",
        "case",
        "models",
        "tools",
        "workloads",
    }
    named = set(re.findall(r"python -m benchmarks\.(\w+)", text))
    assert parts <= named, "name the new benchmark in benchmarks/README.md"
