"""What a public forge reads: the workflows, the metadata, and the owner, who is a placeholder in these files alone."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "OWNER"
NAMES_THE_OWNER = {"pyproject.toml", "CONTRIBUTING.md", "docs/notebook.md", ".github/workflows/release.yml"}
READ = (
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("*.toml"),
    *ROOT.glob(".github/**/*.*"),
    *ROOT.glob("*.yml"),
)


def test_the_owner_is_a_placeholder_in_these_files_alone() -> None:
    """Whoever publishes replaces it in each of them."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path in READ
        if re.search(rf"\b{PLACEHOLDER}\b", path.read_text(encoding="utf-8"))
    }
    assert found == NAMES_THE_OWNER


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
def test_the_metadata_say_where_the_project_is_and_what_it_runs_on() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"Source", "Documentation", "Issues", "Changelog"} <= project["urls"].keys()
    assert all(f"{PLACEHOLDER}" in url and url.startswith("https://") for url in project["urls"].values())
    versions = [line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r"Python :: 3\.", line)]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert {*versions} == {*re.findall(r'\{python: "([\d.]+)"', workflow)}
    assert project["requires-python"] == f">={versions[0]}"


def steps(name: str) -> list[dict[str, Any]]:
    workflow = yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_a_release_needs_a_tag_that_is_the_version_and_no_token() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text and "id-token: write" in text
    (check,) = [step["run"] for step in steps("release.yml") if "version" in step.get("run", "")]
    (pattern,) = re.findall(r"s/(.*?)/\\1/p", check)
    lines = (ROOT / "gradviz/__init__.py").read_text(encoding="utf-8").splitlines()
    python = pattern.replace(r"\(", "(").replace(r"\)", ")")
    assert len([line for line in lines if re.match(python, line)]) == 1


def test_every_action_is_pinned_to_a_version_and_every_job_ends() -> None:
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        assert all(job["timeout-minutes"] <= 60 for job in jobs.values()), path
        uses = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
        assert all("@" in name and not name.endswith(("@main", "@master")) for name in uses), path


def test_tests_run_on_three_systems() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    systems = workflow["jobs"]["systems"]["strategy"]["matrix"]["system"]
    assert {name.partition("-")[0] for name in systems} == {"macos", "windows"}
    assert workflow["jobs"]["all"]["runs-on"].startswith("ubuntu")
