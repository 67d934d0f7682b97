"""What gets no gradient stands in the page: grey rows with the reason, and what was cut off as dashed boxes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gradviz.cli.main import cli
from tests.browser import Open
from tests.cli.scripts import script
from tests.cli.test_why import NET, REASONS
from tests.command_line import CliRunner

pytestmark = pytest.mark.slow


COMMANDS = {
    "render --cut": ("render", "--cut", "-o"),
    "render --check": ("render", "--check", "-o"),
    "check --html": ("check", "--fail-on", "never", "--html"),
}


def written(folder: Path, command: str = "render --cut") -> Path:
    name, *options = COMMANDS[command]
    done = CliRunner().invoke(cli, [name, str(script(folder, NET)), *options, str(folder / "net.html")])
    assert done.exit_code == 0, done.output
    return folder / "net.html"


@pytest.fixture
def page(open_page: Open, tmp_path: Path) -> Any:
    return open_page(written(tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_tensor_without_a_gradient_has_its_reason(open_page: Open, tmp_path: Path, command: str) -> None:
    page = open_page(written(tmp_path, command))
    page.click("#tab-outline")
    rows = dict(
        zip(page.locator("#absent li strong").all_inner_texts(), page.locator("#absent li span").all_inner_texts())
    )
    assert len(rows) == 9 and "net.head.weight" not in rows
    for name, (words, text) in REASONS.items():
        lines = re.findall(r"(?:line |script\.py:)(\d+)", rows[name])
        assert rows[name].startswith(words) and bool(lines) == (text is not None)
        assert len(lines) == len({*lines})  # each is said once


def test_search_finds_what_is_not_in_the_graph(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("spare")
    assert page.locator("#found .absent").all_inner_texts() == [
        f"{name}\nnet.spare was never called, script.py:9" for name in ("net.spare.weight", "net.spare.bias")
    ]


def test_what_was_cut_off_is_grey_and_dashed(page: Any) -> None:
    rows = page.locator("#outline .row.cut .name").all_inner_texts()
    assert {"✂ no_grad", "z", "net.encoder.weight"} <= set(rows) and "sum" not in rows
    drawn = page.evaluate("gradviz.svgOf()")
    assert "stroke-dasharray" in drawn and "cut off: no gradient passes" in page.locator("#legend").inner_text()


def test_edges_of_what_was_cut_off_are_dashed_inside_groups_too(page: Any) -> None:
    """Each drawn edge whose tensor was cut off, or comes from what was, and no other."""
    cut = page.evaluate(
        "[...Array(gradviz.app.model.groups).keys()].flatMap(g => "
        "[...gradviz.app.model.shape(g).above.keys()].map(e => gradviz.lookOf().cutEdge(g, e)))"
    )
    drawn = page.evaluate("gradviz.svgOf()")
    assert 4 < sum(cut) < len(cut) and drawn.count("stroke-dasharray") >= 4


def test_the_list_stands_with_the_outline_only(open_page: Open, tmp_path: Path) -> None:
    page = open_page(written(tmp_path, "check --html"))
    assert page.is_visible("#findings") and not page.is_visible("#absent")
    tabs = page.locator("#tabs button:visible")
    right = [box["x"] + box["width"] for box in (tab.bounding_box() for tab in tabs.all()) if box]
    assert right == sorted(right) and len(right) == 5  # in one row
    assert max(right) <= page.locator("#side").bounding_box()["width"]
    page.click("#tab-outline")
    assert page.is_visible("#absent")


def test_backward_does_not_run_what_was_cut_off(page: Any) -> None:
    steps = page.evaluate("[...gradviz.facts.c.stepNode].map((node) => gradviz.facts.texts[gradviz.facts.c.op[node]])")
    assert steps == ["SumBackward0", "MulBackward0", "AddmmBackward0", "TBackward0", "AccumulateGrad"]
