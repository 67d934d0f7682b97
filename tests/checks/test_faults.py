"""The faults of tests/faults: each is found by its check, and gone when it is mended; the command that counts them counts right."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults import DEFAULT, Fault, changed_lines, lines_named, manifest
from tests.checks.test_scripts import check
from tests.rows import every_other

FAULTS = manifest(DEFAULT)


@pytest.mark.slow
@pytest.mark.parametrize("fault", every_other(FAULTS), ids=lambda fault: fault.broken or fault.fixed)
def test_a_fault_is_found_and_its_cure_is_clean(fault: Fault) -> None:
    if fault.broken:
        found, code = check(DEFAULT / fault.broken)
        assert code == 1 and found[0]["id"] in fault.expected
        assert found[0]["severity"] != "note"
    found, code = check(DEFAULT / fault.fixed)
    assert code == 0, found


def test_every_script_is_in_the_manifest() -> None:
    listed = {name for fault in FAULTS for name in (fault.broken, fault.fixed)} - {""}
    assert listed == {path.name for path in DEFAULT.glob("*.py")}


def test_lines_that_a_fix_changes() -> None:
    assert changed_lines("a\nb\nc\n", "a\nc\n") == {2}
    assert changed_lines("a\nb\n", "new\na\nb\n") == {1}
    assert changed_lines("a\n", "a\n") == set()
    assert lines_named({"where": "net, a.py:3", "fix": "In a.py:5, do.", "line": None}) == {3, 5}


@pytest.mark.slow
def test_the_command_counts(tmp_path: Path) -> None:
    head = "import torch\nw = torch.ones(2, requires_grad=True)\n"
    scripts = {
        "broken.py": f"{head}loss = w.detach().sum()\nloss.backward()\n",
        "fixed.py": f"{head}loss = w.sum()\nloss.backward()\n",
        "accused.py": f"{head}w.exp().backward()\n",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    columns = ["script", "expected", "fixed_script", "group"]
    rows = [
        ("broken.py", "no-graph", "fixed.py", "cut"),
        ("fixed.py", "stale-saved", "fixed.py", "cut"),
        ("accused.py", "", "", "right"),
    ]
    with (tmp_path / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    command = [sys.executable, "-m", "benchmarks.faults", str(tmp_path)]
    done = subprocess.run(command, cwd=DEFAULT.parents[1], capture_output=True, text=True, timeout=200, check=True)
    printed = [line.split() for line in done.stdout.splitlines()]
    assert ["cut", "2", "1/2", "50%", "1/2", "50%", "1/1", "100%", "2/2", "100%"] in printed
    assert ["right", "0", "-", "-", "-", "0/1", "0%"] in printed
    assert printed.index(["false", "alarms:"]) == printed.index(["accused.py"]) - 1
    assert printed.index(["missed:"]) == printed.index(["fixed.py"]) - 1
