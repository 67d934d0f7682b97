"""Ways through the page that people asked for: edges, comparing, shapes, figures, findings, a phone, the editor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gradviz.cli.main import cli
from tests.browser import Open
from tests.builders import GRAPHS, chain
from tests.command_line import CliRunner
from tests.page.graphs import blocks
from tests.page.test_browser import title_at
from tests.page.test_questions import LAYERS, rendered
from tests.rows import every_other

pytestmark = pytest.mark.slow


def module(page: Any, path: str) -> int:
    """The group of a module."""
    return int(page.evaluate(f"gradviz.search('{path}').find(item => item < 0)"))


def test_a_click_on_an_edge_says_what_goes_along_it(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    exp, add = (page.evaluate(f"gradviz.facts.cellOf[{i}]") for i in (1, 0))
    x, y = title_at(page, exp)
    height = page.evaluate("cell => gradviz.app.layout.rect(cell).h * gradviz.app.camera.k", exp)
    page.mouse.click(x, y + height - 15)  # just below the box
    title = page.evaluate("cells => cells.map(cell => gradviz.app.model.title(cell)).join(' → ')", [exp, add])
    assert page.inner_text("#panel-title") == title and "gradient" in page.inner_text("#panel")
    lit = page.evaluate("[0, 1, 2, 3].map(node => gradviz.app.light.item(gradviz.facts.cellOf[node]))")
    assert lit == [True, True, False, False]
    link = page.evaluate("gradviz.writeView()")
    again = open_page(GRAPHS["diamond"], hash=f"#{link}")
    assert again.inner_text("#panel-title") == title
    page.locator("#panel .link").first.click()
    assert page.evaluate("gradviz.app.selected") == exp


def test_two_layers_stand_side_by_side(open_page: Open, tmp_path: Path) -> None:
    page = open_page(rendered(tmp_path, LAYERS, "--color", "grad"))
    for path, second in (("model.0", "false"), ("model.11", "true")):
        page.evaluate(f"item => gradviz.app.select(item, {second})", module(page, path))
    rows = dict(row.split("\t", 1) for row in page.locator("#panel table tr").all_inner_texts() if row)
    assert rows["path"] == "model.0\tmodel.11" and rows["parameters"] == "20\t20"
    differing = page.locator("#panel tr.differs th").all_inner_texts()
    assert "gradient norm" in differing and "path" in differing and "parameters" not in differing


def test_modules_are_ranked_by_parameters_and_alike_ones_are_one_row(open_page: Open, tmp_path: Path) -> None:
    page = open_page(rendered(tmp_path, LAYERS))
    page.click("#tab-memory")
    title = page.locator("#memory h2", has_text="parameters, by module")
    rows = title.locator("xpath=following-sibling::ol[1]").locator("li").all_inner_texts()
    assert [row.split("\n") for row in rows] == [
        ["model", "240"],
        ["model.0–11 ×12", "240"],
        ["model.0–11.fc ×12", "240"],
    ]


@pytest.mark.parametrize("query", every_other(["(2, 4)", "2x4", "2 × 4", "[2,4]"]))
def test_a_shape_is_found_however_it_is_written(open_page: Open, tmp_path: Path, query: str) -> None:
    page = open_page(rendered(tmp_path, LAYERS))
    found = page.evaluate("query => gradviz.search(query)", query)
    shapes = "cell => gradviz.facts.tensorsOf(gradviz.facts.nodeOf(cell)).some(text => text.startsWith('(2, 4)'))"
    cells = page.evaluate(f"[...Array(gradviz.app.model.cells).keys()].filter({shapes})")
    assert len(cells) > 12 and set(found[: len(cells)]) == set(cells)


def test_after_path_to_the_search_names_the_other_end(open_page: Open) -> None:
    page = open_page(blocks(3))
    page.evaluate("gradviz.app.visit(gradviz.facts.cellOf[0])")
    page.click("text=Path to…")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("blocks.0.inner")
    page.keyboard.press("Enter")
    assert re.match(r"[\d,]+ paths? from ", page.inner_text("#panel .trace"))


def test_a_tap_that_opens_the_sheet_presses_nothing_on_it(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    blocks(30).save(str(path))
    first = open_page(path, size=(390, 844))
    context = first.context.browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    page.evaluate("gradviz.app.select(0)")
    button = page.locator("text=Path to…").bounding_box()
    page.evaluate("gradviz.app.select(null)")
    x, y = button["x"] + button["width"] / 2, button["y"] + button["height"] / 2
    left, top = title_at(page, 0)
    page.evaluate("([dx, dy]) => gradviz.app.pan(dx, dy)", [x - left, y - top])  # a box where the button will be
    page.touchscreen.tap(x, y)
    page.wait_for_timeout(400)
    assert page.evaluate("gradviz.app.selected") == 0 and not page.evaluate("gradviz.app.picking")
    context.close()


def test_one_box_is_a_picture_and_files_have_short_names(open_page: Open) -> None:
    page = open_page(blocks(30))
    item = module(page, "blocks.29.inner")
    figure = page.evaluate("item => { const c = gradviz.figureOf(item); return [c.width, c.height]; }", item)
    box = page.evaluate("item => { const r = gradviz.app.layout.rect(item); return [r.w, r.h]; }", item)
    assert figure == [pytest.approx(2 * (side + 32), abs=2) for side in box]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("item => gradviz.app.visit(item)", item)
    page.click("text=Copy picture")
    page.locator("#said", has_text="copied").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.read().then(items => items[0].types)") == ["image/png"]
    titles = ["samples/gpt.py: loss.backward() at gpt.py:105, first of 3", "train.py --layers 12", "loss", "été ü"]
    assert page.evaluate("titles => titles.map(gradviz.fileName)", titles) == ["gpt", "train", "loss", "t"]


def test_findings_of_the_demo_go_to_what_they_name(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the leaves that were cut off, and to the rows of a module that never ran."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["demo"])
    assert done.exit_code == 0, done.output
    page = open_page(tmp_path / "gradviz_demo.html")
    findings = page.locator(".finding")
    findings.nth(0).click()
    assert page.inner_text("#panel-title") == "model.encoder.weight"
    findings.nth(1).click()
    assert page.locator("#absent .on strong").all_inner_texts() == ["model.gate.weight", "model.gate.bias"]


UNUSED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(12))
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(x)

net = Net()
net(torch.randn(2, 4)).sum().backward()
"""


def test_alike_tensors_without_gradient_are_one_row(open_page: Open, tmp_path: Path) -> None:
    page = open_page(rendered(tmp_path, UNUSED, "--cut"))
    assert "24 tensors" in page.inner_text("#absent summary")
    names = page.locator("#absent li strong").all_inner_texts()
    assert len(names) == 2 and all(re.search(r"layers\.0–11\.(weight|bias) ×12$", name) for name in names)


def test_what_depends_is_counted_in_ops(open_page: Open) -> None:
    """Neither leaves nor outputs are ops."""
    page = open_page(chain(5))
    page.evaluate("gradviz.app.visit(gradviz.facts.cellOf[2])")
    assert page.inner_text("#panel .trace") == "depends on 2 ops; 2 ops depend on it"


def test_links_to_an_editor_only_where_they_are_asked_for(open_page: Open, tmp_path: Path) -> None:
    """The folders of the machine leave it with them."""
    asked = open_page(rendered(tmp_path, LAYERS, "--links", "vscode"))
    asked.evaluate("gradviz.app.visit(gradviz.facts.cellOf[0])")
    script = tmp_path / "train.py"
    assert asked.locator("#panel a").first.get_attribute("href").startswith(f"vscode://file{script.as_posix()}:")
    page = open_page(rendered(tmp_path, LAYERS, "--force"))
    page.evaluate("gradviz.app.visit(gradviz.facts.cellOf[0])")
    assert page.locator("#panel a").count() == 0
