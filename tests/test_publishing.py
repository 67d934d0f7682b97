"""What is published agrees with itself: one version, the citation, the changelog, the issue forms, and a site with every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gradviz
from tests.blocks import MADE, PAGES, ROOT

yaml = pytest.importorskip("yaml")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
FORMS = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]


def test_the_version_stands_in_one_place() -> None:
    assert 'dynamic = ["version"]' in PYPROJECT and 'path = "gradviz/__init__.py"' in PYPROJECT
    assert not re.search(r'^version = "', PYPROJECT, re.MULTILINE)
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", gradviz.__version__)


def test_the_citation_has_what_the_format_requires() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] in PYPROJECT and citation["abstract"].rstrip(".") in PYPROJECT


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask_for_the_environment_that_info_prints(form: Path) -> None:
    asked = yaml.safe_load(form.read_text(encoding="utf-8"))
    fields = {field["id"]: field["attributes"] for field in asked["body"]}
    assert asked["name"] and asked["description"]
    assert "gradviz info" in fields["environment"]["description"]


def nav() -> list[str]:
    """Every file that the navigation of the site names."""
    waiting, found = list(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]), []
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, str):
            found.append(one)
        else:
            waiting = [*(one.values() if isinstance(one, dict) else one), *waiting]
    return found


def test_the_site_leads_to_every_page() -> None:
    pages = {path.relative_to(ROOT).as_posix() for path in PAGES} | set(MADE)
    assert {name for name in nav() if name.endswith(".md")} == pages
    assert len(nav()) == len(set(nav())) and set(nav()) - pages == {"reference/index.html"}


def test_the_site_is_built_where_the_tests_run_and_hosted() -> None:
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    hosted = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8"))
    commands = [step.get("run", "") for step in hosted["jobs"]["site"]["steps"]]
    assert "mkdocs build --strict" in run and "mkdocs build --strict" in commands
    assert "python -m build" in run and "twine check --strict" in run


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert releases[0] == f"{gradviz.__version__} (unreleased)" or releases[0].startswith(f"[{gradviz.__version__}] - ")
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", release) for release in releases[1:])
    kinds = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert kinds and set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for release in text.split("\n## ")[1:]:
        heading, *sections = release.split("\n### ")
        assert not re.search("^- ", heading, re.MULTILINE), "put each line below Added, Changed or Fixed"
        assert len({section.partition("\n")[0] for section in sections}) == len(sections)
