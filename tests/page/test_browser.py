"""The page in a real browser: clicked, typed into and looked at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import gradviz
from gradviz.cli.main import cli
from gradviz.comparison.diff import diff
from gradviz.draw.options import Options
from gradviz.graph import Edge, Graph, Node, Root, Scope
from gradviz.page.html import render_difference
from tests.browser import Open
from tests.builders import GRAPHS, accumulate, leaf, random_dag, tensor
from tests.command_line import CliRunner
from tests.page.graphs import PAGES, blocks, hostile, with_views
from tests.rows import every_other

pytestmark = pytest.mark.slow

BOXES = """(() => {
    const found = [];
    const { app } = gradviz, { layout, model } = app;
    const visit = (g, ox, oy) => {
        const sheet = layout.sheet(g);
        for (let i = 0; i < model.shape(g).children; i++) {
            const item = model.item(g, i), [x, y, w, h] = sheet.box.subarray(4 * i, 4 * i + 4);
            found.push({ item, x: ox + x, y: oy + y, w, h, around: ~g });
            if (item < 0 && layout.isOpen(~item)) {
                const inner = layout.inside(~item, { x: ox + x, y: oy + y, w, h });
                visit(~item, inner.x, inner.y);
            }
        }
    };
    visit(0, 0, 0);
    return found;
})()"""
"""Every visible box: its item, its rectangle, and the item around it."""


def overlaps(boxes: list[dict[str, float]]) -> list[tuple[float, float]]:
    """Pairs of boxes that lie on each other without one being inside the other, and boxes that leave the one around them."""
    found = []
    around = {box["item"]: box for box in boxes}
    siblings: dict[float, list[dict[str, float]]] = {}
    for box in boxes:
        siblings.setdefault(box["around"], []).append(box)
        outer = around.get(box["around"])
        if outer is not None and not (
            outer["x"] <= box["x"] + 0.01
            and box["x"] + box["w"] <= outer["x"] + outer["w"] + 0.01
            and outer["y"] <= box["y"] + 0.01
            and box["y"] + box["h"] <= outer["y"] + outer["h"] + 0.01
        ):
            found.append((box["item"], outer["item"]))
    for mine in siblings.values():
        mine.sort(key=lambda box: box["y"])
        for i, one in enumerate(mine):
            for other in mine[i + 1 :]:
                if other["y"] >= one["y"] + one["h"] - 0.01:
                    break
                if one["x"] < other["x"] + other["w"] - 0.01 and other["x"] < one["x"] + one["w"] - 0.01:
                    found.append((one["item"], other["item"]))
    return found


SHUFFLE = """(seed) => {
    const { app } = gradviz;
    let state = seed;
    for (let i = 0; i < 50 && app.model.groups > 1; i++) {
        state = (state * 1103515245 + 12345) % 2147483648;
        app.toggle(1 + state % (app.model.groups - 1));
    }
}"""


@pytest.mark.parametrize("name", every_other(PAGES))
def test_no_box_overlaps_another_after_fifty_openings(open_page: Open, name: str) -> None:
    page = open_page(PAGES[name])
    page.evaluate(SHUFFLE, 1)
    assert not overlaps(page.evaluate(BOXES))
    page.evaluate("gradviz.app.openAll()")
    boxes = page.evaluate(BOXES)
    assert not overlaps(boxes)
    graph = PAGES[name]
    count = len(graph.nodes) - len(graph.leaf_of)
    shown = page.evaluate(f"{BOXES}.filter(box => box.item >= 0 && gradviz.app.model.kind[box.item] === 0).length")
    assert shown == count


BEHIND = """(() => {
    const { layout, model } = gradviz.app, found = [];
    for (let g = 0; g < model.groups; g++) if (layout.isOpen(g) && layout.shown(~g) === ~g) {
        const shape = model.shape(g), { start, xy } = layout.lines(g), box = layout.sheet(g).box;
        const others = [...Array(shape.children).keys()];
        const isInside = (b, x, y) => x > box[4 * b] + 1 && x < box[4 * b] + box[4 * b + 2] - 1
            && y > box[4 * b + 1] + 1 && y < box[4 * b + 1] + box[4 * b + 3] - 1;
        for (let e = 0; e < shape.above.length; e++) for (let i = start[e]; i < start[e + 1] - 1; i++) {
            const [x0, y0, x1, y1] = xy.subarray(2 * i, 2 * i + 4);
            for (let t = 0; t <= 1; t += 0.05) {
                const x = x0 + (x1 - x0) * (3 * t * t - 2 * t ** 3), y = y0 + (y1 - y0) * (1.5 * t * (1 - t) + t ** 3);
                const behind = others.filter((b) => b !== shape.above[e] && b !== shape.below[e] && isInside(b, x, y));
                if (behind.length) found.push([g, e, behind[0]]);
            }
        }
    }
    return found;
})()"""
"""Points of edges that lie in a box that is none of their ends."""


def test_no_edge_passes_behind_an_open_group(open_page: Open) -> None:
    """Four branches, one open: it makes the row of the closed ones higher, and lines to them must not turn inside it."""
    names = ("wide", "a", "b", "c")
    scopes = [Scope("", "Net", 1, None), *(Scope(name, "Branch", 1, 0) for name in names)]
    nodes = [Node(0, "SumBackward0", (tensor(),), 99, 0)]
    edges, last = [], len(names) * 3 + 1
    for branch in range(len(names)):
        first = 1 + 3 * branch
        nodes += [Node(first + i, f"Op{i}Backward0", (tensor(2, 3),), 90 - first - i, branch + 1) for i in range(3)]
        ends = [(0, first), (first, first + 1), (first + 1, first + 2), (first + 2, last)]
        edges += [Edge(upper, lower, 0, branch if upper == 0 else 0) for upper, lower in ends]
    nodes.append(Node(last, "ExpBackward0", (tensor(2, 3),), 1, 0))
    ordered = tuple(sorted(edges, key=lambda edge: (edge.consumer, edge.position)))
    roots = (Root(0, 0, "y", tensor()),)
    page = open_page(Graph(tuple(nodes), ordered, (), roots, tuple(scopes), attribution="recorded"))
    groups = page.evaluate("gradviz.app.model.groups")
    for group in range(1, groups):
        page.evaluate(f"""gradviz.app.closeAll();
            for (let g = {group}; g > 0; g = gradviz.app.model.parent[g]) gradviz.app.layout.setOpen(g, true)""")
        assert page.evaluate(BEHIND) == []


@pytest.mark.parametrize("name", ["empty", "single_leaf", "folded", "freed"])
def test_odd_graphs_open(open_page: Open, name: str) -> None:
    page = open_page(GRAPHS[name])
    assert page.evaluate("gradviz.app.model.groups") >= 1


def title_at(page: Any, item: int) -> tuple[float, float]:
    """Where to click on the title of an item."""
    x, y = page.evaluate(
        """(item) => { const { x, y, k } = gradviz.app.camera, r = gradviz.app.layout.rect(item);
        const b = document.getElementById("canvas").getBoundingClientRect();
        const open = item < 0 && gradviz.app.layout.isOpen(~item);
        return [b.left + x + (r.x + (open ? 30 : r.w / 2)) * k, b.top + y + (r.y + 12) * k]; }""",
        item,
    )
    return x, y


def first_group(page: Any) -> int:
    """The first closed group that shows."""
    found = page.evaluate(f"{BOXES}.find(box => box.item < 0 && !gradviz.app.layout.isOpen(~box.item)).item")
    return int(found)


def test_a_click_opens_in_place_and_the_title_stays_under_the_pointer(open_page: Open) -> None:
    page = open_page(blocks(30), size=(1440, 2000))
    item = first_group(page)
    x, y = title_at(page, item)
    page.mouse.click(x, y)
    assert page.evaluate("item => gradviz.app.layout.isOpen(~item)", item)
    hit = "([x, y]) => { const b = document.getElementById('canvas').getBoundingClientRect(), c = gradviz.app.camera;"
    hit += " const found = gradviz.app.layout.hit((x - b.left - c.x) / c.k, (y - b.top - c.y) / c.k);"
    hit += " return { item: found.item, title: found.title }; }"
    assert page.evaluate(hit, [x, y]) == {"item": item, "title": True}
    page.mouse.click(x, y)
    assert not page.evaluate("item => gradviz.app.layout.isOpen(~item)", item)


def test_a_click_on_a_closed_group_keeps_it_in_view(open_page: Open) -> None:
    """Where it opens below the window or under the panel, what it shows comes into view."""
    page = open_page(blocks(30), size=(1240, 800))
    page.click("#close-all")
    item = first_group(page)
    page.evaluate("gradviz.app.pan(gradviz.app.width / 2 - 100, gradviz.app.height / 2 - 100)")
    page.mouse.click(*title_at(page, item))
    x, y, w, h = page.evaluate(
        """item => { const r = gradviz.app.layout.rect(item), { x, y, k } = gradviz.app.camera;
        return [x + r.x * k, y + r.y * k, r.w * k, r.h * k]; }""",
        item,
    )
    width, height = page.evaluate("[gradviz.app.width - gradviz.app.covered, gradviz.app.height]")
    assert min(x, y) > 0 and x + w < width and y + h < height


def test_the_outline_shares_what_is_open(open_page: Open) -> None:
    page = open_page(blocks(30))
    page.click("#close-all")
    rows = page.locator("#outline [role=treeitem]")
    assert rows.count() == 2  # the module and the output
    rows.first.click()
    page.keyboard.press("ArrowRight")
    assert rows.first.get_attribute("aria-expanded") == "true"
    assert page.evaluate("gradviz.app.layout.isOpen(1)")
    page.keyboard.press("ArrowDown")
    active = page.locator("#outline").get_attribute("aria-activedescendant")
    assert active and page.locator(f"#{active}").get_attribute("aria-level") == "2"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert not page.evaluate("gradviz.app.layout.isOpen(1)")


def test_everything_can_be_done_with_keys(open_page: Open) -> None:
    page = open_page(blocks(30))
    page.click("#close-all")
    page.focus("#canvas")
    page.keyboard.press("Enter")  # selects the first box
    page.keyboard.press("Enter")  # opens it
    assert page.evaluate("gradviz.app.layout.isOpen(1)")
    before = page.evaluate("gradviz.app.camera.y")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("gradviz.app.camera.y") == before + 60
    page.keyboard.press("+")
    page.keyboard.press("f")
    page.keyboard.press("/")
    page.keyboard.type("op3")
    page.keyboard.press("Enter")
    assert "op3" in page.inner_text("#panel-title")
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    assert page.is_visible("#player")


def test_keys_move_the_sheet_without_its_focus(open_page: Open) -> None:
    page = open_page(blocks(30))
    assert page.evaluate("document.activeElement === document.body")
    before = page.evaluate("gradviz.app.camera")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("gradviz.app.camera.x") == before["x"] + 60
    page.keyboard.press("+")
    larger = page.evaluate("gradviz.app.camera.k")
    assert larger > before["k"]
    page.keyboard.press("f")
    assert page.evaluate("gradviz.app.camera.k") < larger


def test_search_counts_visits_and_opens(open_page: Open) -> None:
    page = open_page(blocks(30))
    page.click("#close-all")
    page.fill("#search", "blocks.7.inner")
    assert page.inner_text("#search-count") == "2"  # the module and its parameter
    page.press("#search", "Enter")
    assert page.inner_text("#search-count") == "1/2"
    assert page.evaluate("gradviz.app.layout.rect(gradviz.app.selected).shown === gradviz.app.selected")
    page.fill("#search", "nothing like it")
    assert page.inner_text("#search-count") == "0"


def test_the_panel_says_what_the_graph_knows_and_links(open_page: Open) -> None:
    page = open_page(GRAPHS["everything"])
    page.evaluate("gradviz.app.visit(gradviz.facts.cellOf[0])")
    text = page.inner_text("#panel")
    for words in (
        "ScaleBackward",
        "(s93, 4) float16",
        "custom function",
        "fc (Linear)",
        "train.py:12",
        "h = self.fc(x)",
        "64 B",
        "big",
    ):
        assert words in text
    page.locator("#panel .links .link").first.click()
    assert "tied.w" in page.inner_text("#panel")


def test_trace_lights_what_a_box_depends_on_and_counts_paths(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    exp, add, leaf = (page.evaluate(f"gradviz.facts.cellOf[{i}]") for i in (1, 0, 3))
    page.evaluate("cell => gradviz.app.select(cell)", exp)
    lit = page.evaluate("[0, 1, 2, 3].map(i => gradviz.app.trace.item(gradviz.facts.cellOf[i]))")
    assert lit == [True, True, False, True]
    page.evaluate("([a, b]) => { gradviz.app.select(a); gradviz.app.select(b, true); }", [leaf, add])
    assert page.evaluate("gradviz.app.trace.count.toString()") == "2"
    assert "2 paths" in page.inner_text("#panel")


def test_paths_are_counted_exactly_through_groups(open_page: Open) -> None:
    page = open_page(blocks(80))
    count = page.evaluate("gradviz.between(gradviz.facts, [gradviz.facts.nodes - 2], [0]).count.toString()")
    assert int(count) == 2**79  # a skip connection round each block


def test_a_drawn_edge_is_lit_when_an_edge_behind_it_is(open_page: Open) -> None:
    """On every sheet, the lit edges are those that the lit edges of the graph run along."""
    graph = random_dag(5, 260)
    page = open_page(graph)
    page.evaluate("gradviz.app.openAll(); gradviz.app.select(gradviz.facts.cellOf[30])")
    wrong = page.evaluate(
        """(() => { const { app, facts } = gradviz, { model, trace } = app; let wrong = 0, lit = 0;
        for (let g = 0; g < model.groups; g++) {
            const marks = trace.edges(g), shape = model.shape(g);
            for (let e = 0; e < marks.length; e++) {
                const a = shape.above[e], b = shape.below[e];
                if (a >= shape.children || b >= shape.children) continue;
                const x = model.item(g, a), y = model.item(g, b);
                const inside = (item, cell) => item >= 0 ? item === cell : cell >= model.first[~item] && cell < model.end[~item];
                let should = 0;
                for (let i = 0; i < facts.made.length; i++)
                    if (trace.isLit(i) && inside(x, facts.madeCell(i)) && inside(y, facts.usedCell(i))) should = 1;
                lit += should;
                if (should !== marks[e]) wrong++;
            }
        } return [wrong, lit]; })()"""
    )
    assert wrong[0] == 0
    assert wrong[1] > 10


def test_a_parameter_in_several_calls_that_is_an_output_too(open_page: Open) -> None:
    """It has a box in each call, and the output hangs on the first."""
    nodes = (Node(0, "MmBackward0", (tensor(2),), 2, 1), Node(1, "MmBackward0", (tensor(2),), 1, 0), accumulate(2))
    edges = (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1), Edge(1, 2, 0, 0))
    scopes = (Scope("cell", "Cell", 1, None), Scope("cell", "Cell", 2, None))
    roots = (Root(0, 0, "y", tensor(2)), Root(2, 0, "w", tensor(2)))
    page = open_page(Graph(nodes, edges, (leaf(2, "w"),), roots, scopes), depth="all")
    page.evaluate("gradviz.app.select(gradviz.facts.cellOf[4])")  # the output w
    lit = page.evaluate(
        "[...gradviz.app.trace.cell.keys()].filter(c => gradviz.app.trace.item(c)).map(c => gradviz.app.model.title(c))"
    )
    assert lit == ["w", "w"]


def test_a_link_reproduces_the_view(open_page: Open) -> None:
    graph = blocks(30)
    page = open_page(graph)
    page.evaluate(
        "gradviz.app.toggle(4); gradviz.app.setOverlay('memory'); gradviz.app.select(~2); gradviz.app.pan(30, 40)"
    )
    page.wait_for_timeout(400)
    link = page.evaluate("gradviz.writeView()")
    assert page.evaluate("location.hash") == f"#{link}"
    again = open_page(graph, hash=f"#{link}")
    assert again.evaluate("gradviz.writeView()") == link
    assert again.evaluate(BOXES) == page.evaluate(BOXES)


def test_back_and_forward(open_page: Open) -> None:
    page = open_page(blocks(30))
    first = page.evaluate("gradviz.writeView()")
    page.evaluate("gradviz.app.toggle(1)")
    page.evaluate("gradviz.app.select(0)")
    for _ in range(2):
        page.click("#back")
        page.wait_for_timeout(50)
    assert page.evaluate("gradviz.writeView()") == first
    page.click("#forward")
    page.wait_for_timeout(50)
    assert not page.evaluate("gradviz.app.layout.isOpen(1)")
    page.go_back()  # the browser's own
    page.wait_for_timeout(50)
    assert page.evaluate("gradviz.app.layout.isOpen(1)")


def test_the_backward_pass_plays(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    page.click("#play-open")
    assert "1 / 4" in page.inner_text("#step-words")
    for _ in range(3):
        page.click("#step-on")
    assert "x.grad is filled" in page.inner_text("#step-words")
    assert page.get_attribute("#step", "aria-valuetext") == "step 4 of 4: x.grad is filled"
    page.click("#player-close")
    assert page.evaluate("gradviz.app.step") == -1


def test_the_svg_shows_what_the_screen_shows(open_page: Open) -> None:
    import xml.etree.ElementTree as ElementTree

    page = open_page(PAGES["odd names"])
    page.evaluate("gradviz.app.openAll()")
    root = ElementTree.fromstring(page.evaluate("gradviz.svgOf()"))
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    shown = page.evaluate(f"{BOXES}.filter(box => box.item >= 0).map(box => gradviz.app.model.title(box.item))")
    assert len(shown) > 20
    for title in shown:
        assert title.replace("\ud83d", "") in texts or title in texts


def test_pixels_and_paper(open_page: Open) -> None:
    page = open_page(blocks(30))
    size = page.evaluate("(() => { const c = gradviz.pixelsOf(); return [c.width, c.height]; })()")
    svg = page.evaluate("gradviz.svgOf()")
    width, height = (int(side) for side in re.findall(r'(?:width|height)="(\d+)"', svg)[:2])
    assert size == [pytest.approx(2 * width, abs=2), pytest.approx(2 * height, abs=2)]
    assert page.title() in svg and "several ops" in svg and "dtype float32" in svg  # title and legend
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_timeout(200)
    assert page.evaluate("document.getElementById('paper').naturalWidth") > 100
    assert page.is_visible("#paper") and not page.is_visible("#canvas")


def test_hostile_names_show_as_text(open_page: Open) -> None:
    page = open_page(hostile())
    page.evaluate("gradviz.app.openAll(); gradviz.app.visit(gradviz.facts.cellOf[0])")
    page.click("#play-open")
    assert "onerror" in page.inner_text("#panel") and "onerror" in page.title()
    assert page.locator("img").count() == 1  # the one for paper
    assert page.locator("b").count() == 0
    page.fill("#search", "onerror")
    page.press("#search", "Enter")
    assert page.evaluate("gradviz.finder.found.length") >= 3


def test_the_policy_stops_foreign_script_and_network(browser: Any, tmp_path: Any) -> None:
    path = tmp_path / "page.html"
    hostile().save(str(path))
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    ran = page.evaluate(
        """(async () => { const ran = [];
        await fetch('https://example.org/').then(() => ran.push('fetch'), () => 0);
        const made = document.createElement('script'); made.textContent = 'window.ran = 1'; document.body.append(made);
        if (window.ran) ran.push('script');
        const box = document.createElement('div'); box.setAttribute('onclick', 'window.ran = 1'); box.click();
        if (window.ran) ran.push('handler');
        return ran; })()"""
    )
    page.close()
    assert ran == []
    assert [url for url in asked if not url.startswith("file:")] == []


def test_inside_another_page_it_has_no_bars(open_page: Open) -> None:
    page = open_page(blocks(3), hash="#embed")
    assert page.is_hidden("header") and page.is_hidden("#side")
    assert page.evaluate("gradviz.app.width") == 1440
    page.evaluate("gradviz.app.closeAll()")
    page.mouse.click(*title_at(page, first_group(page)))
    assert page.is_visible("#panel")


def test_on_a_phone(open_page: Open) -> None:
    page = open_page(blocks(30), size=(390, 844))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("gradviz.app.select(~2)")
    assert page.is_visible("#panel")
    box = page.locator("#panel").bounding_box()
    assert box and box["width"] == 390 and box["y"] > 300
    for cell in (0, page.evaluate("gradviz.app.model.cells - 1")):
        page.evaluate("cell => gradviz.app.visit(cell)", cell)
        assert 40 < title_at(page, cell)[1] < box["y"]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The ratio of WCAG 2."""

    def light(color: tuple[float, ...]) -> float:
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(open_page: Open, theme: str) -> None:
    page = open_page(GRAPHS["diamond"], theme=theme)
    colors = {
        name: tuple(int(value[i : i + 2], 16) / 255 for i in (1, 3, 5))
        for name, value in page.evaluate("gradviz.app.colors").items()
        if len(value) == 7
    }
    kinds = ["op", "leaf", "output", "group", "saved", "added", "removed", "changed"]
    tints = [*kinds, *(f"heat{i}" for i in range(1, 6)), *(f"class-{i}" for i in range(1, 9))]
    pairs = [("text", ground) for ground in ("bg", "sheet", "sheet-2", *tints)]
    pairs += [("muted", ground) for ground in ("bg", "sheet", "sheet-2")] + [(f"{kind}-dim", kind) for kind in kinds]
    assert [pair for pair in pairs if contrast(colors[pair[0]], colors[pair[1]]) < 4.5] == []
    for name in ("accent", "warn"):
        assert contrast(colors[name], colors["bg"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_pressed_button_under_the_pointer_can_be_read(open_page: Open, theme: str) -> None:
    page = open_page(GRAPHS["diamond"], theme=theme)
    page.click("#play-open")
    page.hover("#play-open")
    style = "getComputedStyle(document.querySelector('#play-open'))"
    text, ground = (
        tuple(int(part) / 255 for part in re.findall(r"\d+", page.evaluate(f"{style}.{name}"))[:3])
        for name in ("color", "backgroundColor")
    )
    assert contrast(text, ground) >= 4.5


def test_ops_go_by_three_names(open_page: Open) -> None:
    page = open_page(GRAPHS["everything"])
    cell = page.evaluate("gradviz.facts.cellOf[0]")
    title = "cell => gradviz.app.model.title(cell)"
    own = page.evaluate(title, cell)
    page.click("#show summary")
    page.select_option("#names", "backward")
    assert page.evaluate(title, cell) == "ScaleBackward"
    page.select_option("#names", "variable")
    assert page.evaluate(title, cell) == own != "ScaleBackward"


def test_views_are_shown_on_a_switch(open_page: Open) -> None:
    shown = f"{BOXES}.filter(box => box.item >= 0).length"
    page = open_page(with_views(40))
    page.click("#open-all")
    page.click("#show summary")
    page.uncheck("#views")
    assert not page.is_checked("#views")
    before = page.evaluate(shown)
    page.check("#views")
    assert page.evaluate(shown) > before
    page.uncheck("#views")
    assert page.evaluate(shown) == before


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_the_first_view_can_be_read(open_page: Open, size: tuple[int, int]) -> None:
    """Small graphs grow, large ones are not shrunk, and nothing of the header is out of the window."""
    small, large = open_page(GRAPHS["diamond"], size=size), open_page(blocks(90), size=size)
    assert small.evaluate("gradviz.app.camera.k") >= (1.0 if size[0] < 400 else 1.3)
    assert 9 / 11 <= large.evaluate("gradviz.app.camera.k") <= 1.6
    for page in (small, large):
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        edges = (
            "[...document.querySelectorAll('header button, header select')].map(e => e.getBoundingClientRect().right)"
        )
        assert max(page.evaluate(edges)) <= size[0]


def test_the_panel_never_covers_the_box_that_was_clicked(open_page: Open) -> None:
    page = open_page(blocks(30), size=(1024, 768))
    page.evaluate("gradviz.app.openAll(); gradviz.app.visit(gradviz.facts.cellOf[3]); gradviz.app.select(null)")
    page.evaluate("gradviz.app.pan(gradviz.app.width / 2 - 60, 0)")
    cell = page.evaluate("gradviz.facts.cellOf[3]")
    page.mouse.click(*title_at(page, cell))
    panel = page.locator("#panel").bounding_box()
    assert panel and title_at(page, cell)[0] < panel["x"]


def test_boxes_and_edges_have_tooltips(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    exp, add = (page.evaluate(f"gradviz.facts.cellOf[{i}]") for i in (1, 0))
    page.mouse.move(*title_at(page, exp))
    tip = page.inner_text("#tip")
    assert "ExpBackward0" in tip and "sends to x: g · out" in tip
    x, y = title_at(page, exp)
    height = page.evaluate("cell => gradviz.app.layout.rect(cell).h * gradviz.app.camera.k", exp)
    page.mouse.move(x, y + height - 15)  # just below the box
    assert page.evaluate(
        "([a, b]) => gradviz.app.model.title(a) + ' → ' + gradviz.app.model.title(b)", [exp, add]
    ) in page.inner_text("#tip")
    page.mouse.move(5, 5)
    assert page.is_hidden("#tip")


def test_a_path_can_be_chosen_by_touch(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    leaf, add = (page.evaluate(f"gradviz.facts.cellOf[{i}]") for i in (3, 0))
    page.mouse.click(*title_at(page, leaf))
    page.click("text=Path to…")
    page.mouse.click(*title_at(page, add))
    assert "2 paths" in page.inner_text("#panel")


def test_keys_go_into_groups_and_say_what_they_chose(open_page: Open) -> None:
    page = open_page(blocks(30))
    page.click("#close-all")
    page.focus("#canvas")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+ArrowDown")
    inner = page.evaluate("gradviz.app.selected")
    assert page.evaluate("gradviz.app.model.around(gradviz.app.selected)") == 1
    assert page.evaluate("item => gradviz.app.model.title(item)", inner) in page.inner_text("#said")


@pytest.mark.parametrize("menu", ["#show", "details.menu:has(#save-svg)", "#help"])
def test_menus_close_on_escape_and_on_a_press_elsewhere(open_page: Open, menu: str) -> None:
    page = open_page(blocks(3))
    opened = f"document.querySelector('{menu}').open"
    page.click(f"{menu} > summary")
    assert page.evaluate(opened)
    page.keyboard.press("Escape")
    assert not page.evaluate(opened)
    page.click(f"{menu} > summary")
    page.mouse.click(700, 600)
    assert not page.evaluate(opened)


def test_a_phone_has_one_row_of_tools(open_page: Open) -> None:
    """The others are in a menu, which closes when one was chosen."""
    page = open_page(blocks(30), size=(390, 800))
    assert page.locator("header").bounding_box()["height"] < 48
    page.click("#more > summary")
    page.click("#close-all")
    assert page.is_hidden("#close-all") and page.evaluate("gradviz.app.layout.open.reduce((a, b) => a + b)") == 1
    page.click("#more > summary")
    page.click("#show > summary")
    page.check("#shapes")
    assert page.evaluate("gradviz.app.shapes")
    page.keyboard.press("Escape")
    assert page.is_hidden("#shapes")


def test_a_copied_link_opens_the_same_view(open_page: Open) -> None:
    graph = blocks(30)
    page = open_page(graph)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate(
        "gradviz.app.toggle(3); gradviz.app.setView({ names: 'backward', shapes: true }); gradviz.app.pan(9, 9)"
    )
    page.click("details.menu:has(#save-svg) > summary")
    page.click("#copy-link")
    page.locator("#copy-link", has_text="Link copied").wait_for(state="attached")
    link = page.evaluate("navigator.clipboard.readText()")
    again = open_page(graph, hash=f"#{link.partition('#')[2]}")
    assert again.evaluate("[...gradviz.app.layout.open]") == page.evaluate("[...gradviz.app.layout.open]")
    again.click("#show > summary")
    assert again.is_checked("#shapes") and again.input_value("#names") == "backward"
    assert again.evaluate("gradviz.writeView()") == link.partition("#")[2]


LETTERS = """(() => {
    const found = [], draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        if (this.canvas.id === 'canvas') found.push([text, y, x]);
        return draw.apply(this, arguments);
    };
    gradviz.drawStage();
    CanvasRenderingContext2D.prototype.fillText = draw;
    return found;
})()"""
"""What is written on the canvas, how far down, and how far to the right."""


def test_no_text_of_an_edge_stands_on_another_one(open_page: Open) -> None:
    """Two tensors enter a frame where its border has one place for both."""

    class Inner(torch.nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return (left @ right).exp().sin() * 2

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.inner(left, right)
            return result.cos()

    left, right = torch.ones(2, 3, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    with gradviz.record() as recording:
        loss = Outer()(left, right).sum()
    page = open_page(recording.graph(loss))
    page.evaluate("gradviz.app.setView({ names: 'variable', shapes: true })")
    page.click("#open-all")
    written = [(x, y) for text, y, x in page.evaluate(LETTERS) if text.startswith("(") and text.endswith(")")]
    assert len(written) > 3
    for i, (x, y) in enumerate(written):
        assert not any(abs(x - other) < 25 and abs(y - line) < 5 for other, line in written[:i]), written


def test_fit_leaves_no_box_empty_and_no_title_on_a_box(open_page: Open) -> None:
    page = open_page(blocks(3), size=(1280, 800))
    page.click("#open-all")
    page.keyboard.press("f")
    assert page.evaluate("gradviz.app.camera.k * 11") < 7  # a second line could not be read
    written = page.evaluate(LETTERS)
    shown = page.evaluate(
        """gradviz_boxes.map(({ item, y, h }) => {
            const { app } = gradviz, open = item < 0 && app.layout.isOpen(~item), k = app.camera.k;
            return { title: app.model.title(item), top: app.camera.y + y * k, room: (open ? 26 : h) * k };
        })""".replace("gradviz_boxes", BOXES)
    )
    assert len(shown) > 10
    for box in shown:
        begin = box["title"][:2]
        assert any(text.startswith(begin) and 0 < y - box["top"] <= box["room"] for text, y, _ in written), box


def test_an_edge_from_a_leaf_looks_the_same_on_both_sides_of_a_border(open_page: Open) -> None:
    """One leaf, used in two open modules: no piece of its edges has the colour of other edges."""
    nodes = (Node(0, "ExpBackward0", (tensor(2),), 2, 0), Node(1, "SinBackward0", (tensor(2),), 1, 1), accumulate(2))
    scopes = (Scope("a", "A", 1, None), Scope("b", "B", 1, None))
    page = open_page(
        Graph(nodes, (Edge(0, 2, 0, 0), Edge(1, 2, 0, 0)), (leaf(2, "w"),), (), scopes, attribution="recorded")
    )
    page.click("#open-all")
    svg = page.evaluate("gradviz.svgOf()")
    line, soft = page.evaluate("[gradviz.app.colors.line, gradviz.app.colors['soft-line']]")
    curves = [
        path for path in re.findall(r"<path[^>]*>", svg) if " C" in path or "C" in re.findall('d="([^"]*)"', path)[0]
    ]
    assert curves and all(f'stroke="{soft}"' in path for path in curves if 'fill="none"' in path)
    assert not any(f'stroke="{line}"' in path for path in curves)


def test_a_difference_is_listed_and_jumps_to_its_boxes(open_page: Open, tmp_path: Path) -> None:
    """A module that went as a whole is one row."""
    path = tmp_path / "diff.html"
    path.write_text("".join(render_difference(diff(blocks(6), blocks(4)), Options())))
    page = open_page(path)
    rows = page.locator("#changes button")
    assert page.get_attribute("#tab-changes", "aria-selected") == "true"
    assert "removed" in page.inner_text("#changes") and rows.count() < 6
    rows.first.click()
    assert page.evaluate("gradviz.app.selected") is not None
    assert open_page(blocks(2)).is_disabled("#overlay option[value=diff]")


VAE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        h = self.fc(x)
        noise = torch.randn_like(h)
        return h.exp() * noise

x = torch.randn(2, 4)
model = Net()
loss = (model(x) - 1).pow(2).mean()
loss.backward()
"""


def test_inputs_without_gradient_are_boxes_and_no_part_of_backward(open_page: Open, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(VAE, encoding="utf-8")
    target = tmp_path / "train.html"
    done = CliRunner().invoke(cli, ["render", str(script), "--color", "grad", "-o", str(target)])
    assert done.exit_code == 0, done.output
    page = open_page(target)
    data = "[...gradviz.app.model.kind.keys()].filter(cell => gradviz.app.model.kind[cell] === 4)"
    x, noise = page.evaluate(data)
    assert page.evaluate(f"{data}.map(cell => gradviz.app.model.around(cell))") == [0, 1]

    page.fill("#search", "noise")
    page.press("#search", "Enter")
    assert page.evaluate("gradviz.app.selected") == noise
    panel = page.inner_text("#panel")
    assert "input without gradient" in panel and "(2, 3) float32" in panel and "mul" in panel
    assert ".grad" not in panel and "AccumulateGrad" not in panel

    page.evaluate("cell => gradviz.app.visit(cell)", x)
    lit = "(item) => gradviz.app.trace.item(gradviz.facts.cellOf[item])"
    assert page.evaluate(lit, 0) and not page.evaluate("cell => gradviz.app.trace.item(cell)", noise)
    fc = page.evaluate("gradviz.search('fc').find(item => item < 0)")
    page.evaluate("item => gradviz.app.visit(item)", fc)
    assert page.evaluate("cell => gradviz.app.trace.item(cell)", x)
    assert page.evaluate("item => gradviz.app.model.color(item)", fc) == "layer"
    page.select_option("#overlay", "kind")
    assert "layer" in page.inner_text("#legend") and "attention" not in page.inner_text("#legend")

    ranked = page.evaluate("document.getElementById('gradients').textContent")
    assert "fc.weight" in ranked and "noise" not in ranked
    page.click("#play-open")
    page.evaluate("gradviz.player.reach(gradviz.facts.c.stepNode.length - 1)")
    assert page.evaluate(f"{data}.map(cell => gradviz.app.light.item(cell))") == [False, False]
    page.keyboard.press("Escape")

    page.click("#show summary")
    page.uncheck("#inputs")
    drawn = page.evaluate("gradviz.svgOf()")
    assert ">noise<" not in drawn
    page.check("#inputs")
    assert ">noise<" in page.evaluate("gradviz.svgOf()")
