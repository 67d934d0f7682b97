"""The page of each check: complete, in the documentation and in the terminal."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest

from gradviz.checks.collect.functions import APPLY
from gradviz.checks.collect.loop import LoopWatch
from gradviz.checks.pages import EXAMPLE, SECTIONS, page
from gradviz.checks.registry import Check, checks
from gradviz.checks.watched import WatchedRun
from gradviz.cli.main import cli
from gradviz.run.target import parse_target
from tests.command_line import CliRunner

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.skipif(
    APPLY is None, reason="this torch shows custom Functions only where they save tensors, and the pages would say so"
)
def test_the_pages_of_the_checks_are_up_to_date() -> None:
    with warnings.catch_warnings(record=True):  # what torch warns of is an example
        warnings.simplefilter("default")
        made = runpy.run_path(str(DOCS / "make_checks.py"))["documents"]()
    for path, text in made.items():
        assert path.read_text().splitlines() == text.splitlines(), "run: python docs/make_checks.py"
    assert sorted((DOCS / "checks").iterdir()) == sorted(path for path in made if path.parent.name == "checks")


def test_every_link_to_a_check_still_leads_to_it() -> None:
    """Links from elsewhere name checks.md#ID, as when all checks stood on one page."""
    listed = (DOCS / "checks.md").read_text()
    for one in checks():
        (page,) = re.findall(rf'<a id="{one.id}"></a>\[`{one.id}`\]\((.*?)#{one.id}\)', listed)
        assert f"\n## `{one.id}`\n" in (DOCS / page).read_text()


@pytest.mark.parametrize("one", checks(), ids=lambda one: one.id)
def test_every_check_has_its_page(one: Check) -> None:
    made = page(one)
    assert all(len(part) > 10 for part in made.values())
    result = CliRunner().invoke(cli, ["check", "--explain", one.id])
    assert result.exit_code == 0
    printed = result.stdout.splitlines()
    assert printed[0].startswith(one.id) and all(title in printed for title in ("What it means", *SECTIONS))
    code = {f"  {line}".rstrip() for line in made[EXAMPLE].rstrip().splitlines()}
    assert code <= set(printed) and max(map(len, set(printed) - code)) <= 80


def test_an_unknown_check_is_not_explained() -> None:
    result = CliRunner().invoke(cli, ["check", "--explain", "no-grap"])
    assert result.exit_code == 2 and "Did you mean no-graph" in result.output


def test_all_functions_of_torch_that_are_watched_are_listed() -> None:
    text = (DOCS / "recording.md").read_text()
    watched = WatchedRun(parse_target(str(DOCS / "make_checks.py")), runs_on=True, values=False, cuts=False)
    collector = watched._collector
    readers = LoopWatch(collector.recorder), collector._modes, watched._functions, watched._watch
    functions = [function for reader in readers for function, _ in reader.listeners()]
    assert len(functions) > 20
    for function in functions:
        assert f"`{function.__qualname__}`" in text or f"`{function.__name__}`" in text, function
