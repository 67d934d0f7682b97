"""What checks the repository elsewhere agrees with pyproject.toml: hooks before a commit, hosted runs, the matrix of versions."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest

from tests.blocks import ROOT

yaml = pytest.importorskip("yaml")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MATRIX = runpy.run_path(str(ROOT / ".ci" / "matrix"))
CASES = [tuple(case.split(":")) for case in MATRIX["CASES"]]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def lowest(pattern: str) -> tuple[int, ...]:
    """The version that pyproject.toml names after these words."""
    found = re.search(rf"{pattern}>=([\d.]+)", PYPROJECT)
    assert found is not None
    return numbers(found[1])


def test_the_hosted_runs_are_those_of_the_matrix() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    assert [(case["python"], case["torch"]) for case in jobs["versions"]["strategy"]["matrix"]["include"]] == CASES
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert {".ci/run", ".ci/matrix --wheel --lowest 3.11:2.6.0"} <= set(commands)
    assert ".ci/matrix ${{ matrix.python }}:${{ matrix.torch }}" in commands
    assert all((ROOT / command.split()[0]).exists() for command in commands if command.startswith(".ci/"))


def test_the_tests_of_the_matrix_are_there() -> None:
    assert all((ROOT / "tests" / folder).is_dir() for folder in MATRIX["CAPTURE"])
    assert all((ROOT / file).is_file() for file in (*MATRIX["LONG"], MATRIX["SAMPLE"], MATRIX["SOAK"]))
    assert (ROOT / MATRIX["HOSTS"]).is_dir()


def test_the_matrix_can_install_hosts_and_the_lowest_versions() -> None:
    wanted = MATRIX["wanted"]
    others = MATRIX["OTHERS"].split()
    assert wanted(hosts=False, lowest=False) == others
    hosts = wanted(hosts=True, lowest=False)[len(others) :]
    assert [re.split("[>=]", host)[0] for host in hosts[:4]] == ["skorch", "lightning", "pytorch-ignite", "accelerate"]
    assert wanted(hosts=False, lowest=False, wheel=True) == [*others, *MATRIX["listed"]("test")]
    lowest = wanted(hosts=False, lowest=True)
    assert {"click==8.1", "rich==13.0", "numpy==1.24"} <= set(lowest)
    names = [re.split("[<>=]", name)[0] for name in lowest]
    assert len([name for name in names if name != "pygraphviz"]) == len(set(names)) - 1 and "torch" not in names


def test_the_matrix_begins_at_the_lowest_versions_that_are_promised() -> None:
    assert min(numbers(python) for python, _ in CASES) == lowest('requires-python = "')
    assert min(numbers(torch)[:2] for _, torch in CASES) == lowest('"torch')
    pythons = {numbers(python) for python, _ in CASES}
    assert pythons == {(3, minor) for minor in range(min(pythons)[1], max(pythons)[1] + 1)}
    assert f'target-version = "py{"".join(map(str, min(pythons)))}"' in PYPROJECT


def test_the_tested_version_is_one_of_the_matrix() -> None:
    pinned = re.findall(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned and set(pinned) <= {torch for _, torch in CASES}


def test_the_hooks_run_tools_that_the_test_extra_brings() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert [re.findall(r"python -m (\w+)(?: format)?", entry) for entry in entries] == [["ruff"], ["ruff"], ["mypy"]]
    extra = PYPROJECT.partition("\ntest = [")[2].partition("]")[0]
    assert all(f'"{tool}>=' in extra for tool in ("ruff", "mypy", "pre-commit"))


def test_the_hooks_are_valid() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    clientlib.load_config(str(ROOT / ".pre-commit-config.yaml"))
