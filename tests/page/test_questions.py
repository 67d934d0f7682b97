"""What people ask of a page, each question with the actions that its answer takes: clicks, keys and words typed."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

import gradviz
from gradviz.cli.main import cli
from gradviz.comparison.diff import diff
from gradviz.draw.options import Options
from gradviz.gradients.flow import measure
from gradviz.gradients.live import open_graph
from gradviz.page.html import render_difference
from tests.browser import Open
from tests.command_line import CliRunner
from tests.page.graphs import blocks
from tests.page.test_browser import title_at

pytestmark = pytest.mark.slow


ATTENTION = """
import math
import torch

torch.manual_seed(0)
x = torch.randn(5, 8)
Wq, Wk, Wv = (torch.randn(8, 8, requires_grad=True) for _ in range(3))
q, k, v = x @ Wq, x @ Wk, x @ Wv
scores = q @ k.T / math.sqrt(8)
weights = torch.softmax(scores, -1)
out = weights @ v
loss = out.pow(2).mean()
loss.backward()
"""


LAYERS = """
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        return x + self.fc(x).tanh()

model = torch.nn.Sequential(*(Layer() for _ in range(12)))
torch.nn.functional.mse_loss(model(torch.randn(2, 4)), torch.zeros(2, 4)).backward()
"""


def rendered(folder: Path, script: str, *options: str) -> Path:
    """The page that `gradviz render` writes of a script."""
    (folder / "train.py").write_text(script)
    words = ["render", str(folder / "train.py"), "-o", str(folder / "train.html"), *options]
    assert CliRunner().invoke(cli, words).exit_code == 0
    return folder / "train.html"


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("attention"), ATTENTION, "--color", "grad")


def cell_of(page: Any, op: str) -> int:
    """The box of the first op of this name."""
    found = "op => gradviz.facts.cellOf[[...Array(gradviz.facts.nodes).keys()].find(i => gradviz.facts.word('op', i) === op)]"
    return int(page.evaluate(found, op))


def click(page: Any, op: str) -> None:
    """One action: a click on the box of an op."""
    page.mouse.click(*title_at(page, cell_of(page, op)))


def test_what_does_this_compute_and_on_which_line(open_page: Open, attention: Path) -> None:
    page = open_page(attention)
    click(page, "SoftmaxBackward0")
    assert page.inner_text("#panel-title") == "weights"
    panel = page.inner_text("#panel")
    for words in (
        "SoftmaxBackward0",
        "What it computed",
        "What it sends back",
        "needs out, for the gradient of x",
        "100 B",
    ):
        assert words in panel
    assert "weights = torch.softmax(scores, -1)" in panel
    assert page.locator("#panel math").count() == 2
    assert page.locator("#panel math mi").first.text_content() == "x"  # letters are variables
    assert page.locator("#panel math").last.get_attribute("alttext") == "out · (g − Σ_dim g · out)"


def test_what_is_the_vjp_of_this_node(open_page: Open, attention: Path) -> None:
    """One action: the formula, what arrives and how large it is, who receives it, and how large it is there."""
    page = open_page(attention)
    click(page, "SoftmaxBackward0")
    assert page.locator("#panel math").last.get_attribute("alttext") == "out · (g − Σ_dim g · out)"
    words = page.inner_text("#panel")
    (arrives, sent) = re.search(
        r"g is the gradient that arrives, \(5, 5\) norm ([\d.]+); x is scores \(5, 5\), which receives norm ([\d.]+)",
        words,
    ).groups()  # type: ignore[union-attr]
    graph = measure(open_graph(attention_loss())).graph
    norms = {graph.nodes[step.node].op: step.norm for step in graph.backward}
    assert float(arrives) == pytest.approx(norms["SoftmaxBackward0"], rel=1e-3)
    assert float(sent) == pytest.approx(norms["DivBackward0"], rel=1e-3)


def attention_loss() -> torch.Tensor:
    space: dict[str, Any] = {}
    exec(ATTENTION.replace("loss.backward()", ""), space)
    loss: torch.Tensor = space["loss"]
    return loss


def test_a_plain_number_is_sent_nothing(open_page: Open, attention: Path) -> None:
    page = open_page(attention)
    click(page, "DivBackward0")
    panel = page.inner_text("#panel")
    assert "x is matmul" in panel and "to x" in panel and "to y" not in panel
    assert "y: a plain number, or a tensor that needs no gradient; nothing is sent." in panel
    assert "needs y, for the gradient of x" in panel and "gradient of y" not in panel


def test_held_and_freed_are_one_number(open_page: Open, attention: Path) -> None:
    """In the colours, in the panel of the page, and in the player, where all of it is freed at the end."""
    page = open_page(attention)
    page.select_option("#overlay", "memory")
    (total,) = re.findall(r"of (.*) held for backward", page.inner_text("#legend"))
    page.evaluate("gradviz.app.select(~0)")
    assert f"holds\n{total}" in page.inner_text("#panel")
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    assert f"0 B freed of {total} held for backward" in page.inner_text("#step-words")
    page.evaluate("gradviz.player.reach(gradviz.facts.c.stepNode.length - 1)")
    assert f"{total} freed of {total} held for backward" in page.inner_text("#step-words")


def test_torchs_own_text_is_marked_as_such(open_page: Open) -> None:
    x = torch.randn(3, requires_grad=True)
    page = open_page(gradviz.walk(torch.celu(x).sum()))
    click(page, "CeluBackward0")
    assert "torch's own text, of celu(self, alpha)" in page.inner_text("#panel")
    assert page.locator("#panel math").count() == 0


def test_which_way_does_the_gradient_come(open_page: Open, attention: Path) -> None:
    """Shapes and norms on the way to the output."""
    page = open_page(attention)
    click(page, "SoftmaxBackward0")
    rows = page.locator("#panel .way li").all_inner_texts()
    assert [row.split()[0] for row in rows] == ["weights", "out", "**", "mean", "loss"]
    assert all("‖gradient‖" in row for row in rows[:-1]) and "(5, 8)" in rows[1]


def test_which_ops_did_this_line_make(open_page: Open, attention: Path) -> None:
    """One action in the Code tab."""
    page = open_page(attention)
    page.click("#tab-code")
    row = page.locator("#code button.line", has_text="scores = q @ k.T")
    assert "3 ops" in row.inner_text()
    row.click()
    panel = page.inner_text("#panel")
    for words in ("train.py", "3 ops", "gradient norm", "up to", "T (8, 5)", "matmul", "scores"):
        assert words in panel
    lit = "[...Array(gradviz.app.model.cells).keys()].filter(cell => gradviz.app.light.item(cell)).length"
    assert page.evaluate(lit) == 3


def test_a_box_shows_its_line(open_page: Open, attention: Path) -> None:
    page = open_page(attention)
    page.click("#tab-code")
    click(page, "SoftmaxBackward0")
    page.wait_for_selector("#code .on code")
    assert page.locator("#code .on code").all_inner_texts() == ["weights = torch.softmax(scores, -1)"]


def test_a_line_lights_boxes_through_folds(open_page: Open, tmp_path: Path) -> None:
    page = open_page(rendered(tmp_path, LAYERS))
    page.click("#close-all")
    page.click("#tab-code")
    page.locator("#code button.line", has_text="return x + self.fc(x).tanh()").click()
    assert page.evaluate("gradviz.app.light.item(~1)")
    rows = page.locator("#panel .links li").all_inner_texts()
    assert len(rows) == 4 and all("×12" in row and "model.0–11" in row for row in rows)


def test_no_page_has_a_folder_of_the_machine(attention: Path, tmp_path: Path) -> None:
    """Neither in its markup nor in its facts, where code of libraries made nodes, too."""
    for path in (attention, rendered(tmp_path, LAYERS)):
        text = path.read_text()
        blocks = re.findall(r'<script type="application/octet-stream"[^>]*>([^<]*)<', text)
        told = "".join(zlib.decompress(base64.b64decode(block)).decode("latin-1") for block in blocks)
        assert "train.py" in told
        for folder in (str(path.parent), "site-packages", str(Path(torch.__file__).parent)):
            assert folder not in told + text


SUM = """
import torch

w = torch.tensor(1.0, requires_grad=True)
x = torch.tensor(2.0)
a = 3 * w
b = x * w
loss = a + b
loss.backward()
"""


def test_single_numbers_stand_in_their_boxes(open_page: Open, tmp_path: Path) -> None:
    """And where two gradients meet, their sum."""
    page = open_page(rendered(tmp_path, SUM, "--values"))
    page.keyboard.press("p")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    texts = re.findall(r"<text[^>]*>([^<]*)<", page.evaluate("gradviz.svgOf()"))
    assert "= 1, grad 5" in texts and "3 + 2 = 5" in texts


def test_edges_bear_the_products_of_paths(open_page: Open, tmp_path: Path) -> None:
    """Two actions, a box and another: the derivative as the sum of all paths."""
    page = open_page(rendered(tmp_path, SUM, "--values"))
    texts = re.findall(r"<text[^>]*>([^<]*)<", page.evaluate("gradviz.svgOf()"))
    assert sorted(text for text in texts if "×" in text) == ["× 1", "× 1", "× 2", "× 3"]
    click(page, "AccumulateGrad")
    page.keyboard.down("Shift")
    click(page, "AddBackward0")
    words = page.inner_text("#panel .trace")
    assert words.startswith("2 paths from w to add; derivative ") and words.endswith(" = 5")
    assert set(re.findall(r"\d × \d", words)) == {"1 × 2", "1 × 3"}


def test_what_nobody_saved_is_noted_as_it_ran_or_said_to_be_unknown(open_page: Open, tmp_path: Path) -> None:
    page = open_page(rendered(tmp_path, ATTENTION, "--values"))
    click(page, "DivBackward0")  # keeps nothing
    assert page.locator("#panel .tensor").first.locator("span").count() == 25
    click(page, "PermuteBackward0")  # an attribute of its tensor, and no call
    assert "value (8, 5): not known: autograd did not save it" in page.inner_text("#panel")


def test_small_tensors_are_cells(open_page: Open, tmp_path: Path) -> None:
    page = open_page(rendered(tmp_path, ATTENTION, "--values"))
    click(page, "SoftmaxBackward0")
    tensors = page.locator("#panel .tensor")
    assert [text.split("\n")[0] for text in tensors.all_inner_texts()] == [
        "value (5, 5)",
        "gradient that arrives (5, 5)",
        "sent to scores (5, 5)",
    ]
    assert tensors.first.locator("span").count() == 25
    row = [float(text) for text in tensors.first.locator("span").all_inner_texts()[:5]]
    assert sum(row) == pytest.approx(1, abs=0.01)


VANISHES = """
import torch

net = torch.nn.Sequential(*(module for _ in range(12) for module in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())))
net(torch.randn(4, 8)).sum().backward()
"""


def test_where_does_the_gradient_vanish(open_page: Open, tmp_path: Path) -> None:
    """A strip of all norms, and the range of norms in each group; a click on the strip goes to the box."""
    page = open_page(rendered(tmp_path, VANISHES, "--color", "grad"))
    assert page.is_visible("#profile")
    line = page.evaluate("gradviz.app.overlay.line(~1)")
    low, high = re.findall(r"[\d.e-]+", line.removeprefix("norm"))
    assert float(high) / float(low) > 1e5
    box = page.locator("#profile").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] - 9, box["y"] + 50)
    last = page.evaluate("gradviz.facts.cellOf[gradviz.facts.c.stepNode.at(-1)]")
    assert page.evaluate("gradviz.app.selected") == last


def test_which_module_holds_most(open_page: Open, tmp_path: Path) -> None:
    """One action: the bars of the Memory tab, which go to their boxes."""
    page = open_page(rendered(tmp_path, LAYERS))
    page.click("#tab-memory")
    rows = page.locator("#memory li button")
    texts = rows.all_inner_texts()
    amounts = page.evaluate(
        "[...document.querySelectorAll('#memory ol:first-of-type .bar')].map(bar => parseFloat(bar.style.width))"
    )
    assert amounts == sorted(amounts, reverse=True) and amounts[0] == 100
    assert any("train.py:10" in text for text in texts)
    rows.first.click()
    assert page.evaluate("gradviz.app.selected") is not None
    total = page.evaluate("gradviz.facts.c.held.reduce((a, b) => a + Number(b), 0)")
    listed = page.evaluate("gradviz.byModule().reduce((sum, bar) => sum + bar.amount, 0)")
    assert listed == total > 0


def test_what_changed_between_two_calls(open_page: Open, tmp_path: Path) -> None:
    """Two actions: the first version alone, then the second."""
    before, after = blocks(4), blocks(6)
    path = tmp_path / "diff.html"
    path.write_text("".join(render_difference(diff(before, after), Options())))
    page = open_page(path)
    page.click("#open-all")
    boxes = "(gradviz.svgOf().match(/Op[0-9]|op[0-9]/g) || []).length"
    both = page.evaluate(boxes)
    page.select_option("#version", "1")
    first = page.evaluate(boxes)
    page.select_option("#version", "2")
    second = page.evaluate(boxes)
    assert first == 4 * 5 < second == 6 * 5 <= both


TRANSFORMER = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 5, 2, 12).transpose(1, 2).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / 2
        weights = scores.softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(2, 5, 8))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), Attention()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)

model = nn.Sequential(*(Block() for _ in range(12)))
model(torch.randn(2, 5, 8)).pow(2).mean().backward()
"""


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("transformer"), TRANSFORMER)


VISIBLE = """(() => {
    const { app } = gradviz, { layout, model } = app, found = [];
    const visit = (g) => {
        for (let i = 0; i < model.shape(g).children; i++) {
            const item = model.item(g, i);
            found.push(item);
            if (item < 0 && layout.isOpen(~item)) visit(~item);
        }
    };
    visit(0);
    return found;
})()"""


def group_called(title: str) -> str:
    """JavaScript for the first group of this title."""
    return f"~[...Array(gradviz.app.model.groups).keys()].find(g => gradviz.app.model.title(~g) === '{title}')"


def test_every_box_answers_with_its_line_first(open_page: Open, transformer: Path) -> None:
    """Then with the formula of its main op, and the ops beside it that only change a shape."""
    page = open_page(transformer)
    formulas = {}
    for item in page.evaluate(VISIBLE):
        page.evaluate("item => gradviz.app.select(item)", item)
        first = page.locator("#panel-body > *").first
        assert first.locator("code").first.inner_text(), page.inner_text("#panel-title")
        assert "train.py:" in first.inner_text()
        formulas[page.inner_text("#panel-title").split()[0]] = page.locator("#panel math").count()
    assert all(formulas[name] for name in ("norm", "qkv", "proj", "x", "mlp"))
    page.evaluate(f"gradviz.app.select({group_called('qkv')})")
    panel = page.inner_text("#panel")
    assert "What it computed" in panel and "+3 reshapes" in panel and "self.qkv(x)" in panel


def test_without_a_recording_the_panel_says_how_lines_come(open_page: Open) -> None:
    page = open_page(gradviz.walk(attention_loss()))
    click(page, "SoftmaxBackward0")
    assert "gradviz render" in page.locator("#panel-body > *").first.inner_text()


def test_search_says_the_layer_and_how_often(open_page: Open, transformer: Path) -> None:
    """And Enter closes the list; the next one goes on from match to match."""
    page = open_page(transformer)
    page.fill("#search", "scores")
    rows = page.locator("#found li").all_inner_texts()
    assert len(rows) == len(set(rows)) < 12
    assert rows[0].startswith("scores ×12") and "model.0–11.attention" in rows[0]
    page.press("#search", "Enter")
    assert page.is_hidden("#found") and page.inner_text("#panel-title") == "scores"
    assert page.inner_text("#search-count").startswith("1/")
    page.press("#search", "Enter")
    assert page.is_hidden("#found") and page.inner_text("#search-count").startswith("2/")
    page.press("#search", "ArrowDown")
    assert page.is_visible("#found") and page.inner_text("#search-count").startswith("13/")


def test_a_line_goes_to_the_open_module(open_page: Open, transformer: Path) -> None:
    """Not to the eleven that are closed."""
    page = open_page(transformer)
    page.click("#tab-code")
    page.locator("#code button.line", has_text="scores = q @").click()
    node = page.evaluate("gradviz.app.clearest(gradviz.app.line.nodes)")
    cell = page.evaluate("node => gradviz.facts.cellOf[node]", node)
    shown = page.evaluate("cell => gradviz.app.layout.shown(cell)", cell)
    depth = page.evaluate("item => item < 0 ? gradviz.app.model.depth[~item] : 99", shown)
    depths = page.evaluate(
        "gradviz.app.line.nodes.map(node => gradviz.app.layout.shown(gradviz.facts.cellOf[node]))"
        ".map(item => item < 0 ? gradviz.app.model.depth[~item] : 99)"
    )
    assert depth == max(depths) > min(depths)
    x, y = title_at(page, shown)
    assert 300 < x < 1440 - 360 and 40 < y < 900
    page.locator("#panel .links .link", has_text="scores").click()
    assert page.evaluate("gradviz.app.model.title(gradviz.app.selected)") == "scores"
    assert page.evaluate("gradviz.app.layout.open.reduce((a, b) => a + b)") < 12  # what was closed still is


def test_equal_rows_of_memory_are_one(open_page: Open, transformer: Path) -> None:
    page = open_page(transformer)
    page.click("#tab-memory")
    rows = page.locator("#memory ol").first.locator("li").all_inner_texts()
    assert sum("attention.qkv" in row for row in rows) == 1
    assert any("model.0–11.attention.qkv ×12" in row for row in rows)
    assert sum("mlp.0" in row for row in rows) == sum("mlp.1" in row for row in rows) == 1  # not one of both


def test_curve_and_slider_have_one_axis(open_page: Open, transformer: Path) -> None:
    """And the first step is on the screen."""
    page = open_page(transformer, size=(1280, 800))
    page.keyboard.press("p")
    first = page.evaluate("gradviz.app.layout.shown(gradviz.facts.cellOf[gradviz.facts.c.stepNode[0]])")
    stage = page.locator("#canvas").bounding_box()
    x, y = title_at(page, first)
    assert stage["x"] < x < stage["x"] + stage["width"] and stage["y"] < y < stage["y"] + stage["height"]
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    functions = page.evaluate("gradviz.facts.c.stepNode.length")
    assert "8 / " in page.inner_text("#step-words") and page.get_attribute("#step", "max") == str(functions - 1)
    value = int(page.input_value("#step"))
    assert value == page.evaluate("gradviz.app.step")
    slider, curve = page.locator("#step").bounding_box(), page.locator("#curve").bounding_box()
    thumb = slider["x"] + 8 + (slider["width"] - 16) * value / (functions - 1)
    page.mouse.move(thumb, curve["y"] + 20)
    assert f"function {value + 1:,}:" in page.inner_text("#alive")
    page.focus("#step")
    page.keyboard.press("ArrowLeft")
    assert "7 / " in page.inner_text("#step-words")


def test_which_gradients_are_largest_smallest_and_zero(open_page: Open, tmp_path: Path) -> None:
    script = VANISHES + "\nfor parameter in net[0].parameters(): parameter.grad.zero_()\n"
    script = script.replace("net(torch", "net[22].weight.data.zero_(); net(torch")
    page = open_page(rendered(tmp_path, script, "--color", "grad"))
    page.click("#tab-gradients")
    heads, rows = page.locator("#gradients h2").all_inner_texts(), page.locator("#gradients ol").all()
    assert [head.split()[0] for head in heads] == ["norms", "zero:"]
    assert rows[0].locator("li").count() == 2 and rows[1].locator("li").count() == 22
    rows[0].locator("button").first.click()
    assert page.inner_text("#panel-title").startswith(rows[0].locator("bdi").first.inner_text().rpartition(".")[2])


def test_a_page_without_gradients_says_how_to_measure_them(open_page: Open, transformer: Path) -> None:
    page = open_page(transformer)
    page.click("#tab-gradients")
    assert "gradviz render train.py --color grad -o train.html" in page.inner_text("#gradients")
    loss = attention_loss()
    page = open_page(gradviz.walk(loss))
    page.click("#tab-gradients")
    assert 'gradviz.flow(loss).graph.save("page.html", color="grad")' in page.inner_text("#gradients")
    page = open_page(gradviz.flow(loss).graph, color="grad")
    page.click("#tab-gradients")
    assert page.locator("#gradients ol li").count() == 3
