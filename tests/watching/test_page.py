"""The page of a watched run in a real browser: curves, the steps before a NaN, and looks that open their graphs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import gradviz
from tests.browser import Open
from tests.watching.test_watch import network, run

pytestmark = pytest.mark.slow

_SIZES = [(1440, 900), (390, 844)]


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_curves_the_steps_before_and_a_graph(size: tuple[int, int], tmp_path: Path, open_page: Open) -> None:
    run(network(), 320, lambda step, loss: loss * math.nan if step >= 260 else loss, every=100, out=tmp_path)
    page = open_page(tmp_path / "index.html", size=size)
    assert page.locator("#counts").inner_text().startswith("320 steps, 4 looks, ")
    assert "the loss is nan at step 260" in page.locator("#broken").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.locator("#loss path.curve").get_attribute("d").count("L") == 258
    page.click("#show-before")
    assert page.locator("#loss path.curve").get_attribute("d").count("L") == 198
    page.focus("#loss")
    page.keyboard.press("End")
    assert page.locator("#reading").inner_text().startswith("step 260 · loss nan · ")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#reading").inner_text().startswith("step 259 · loss 0.")
    page.locator("#looks button").nth(1).click()
    frame = page.frame_locator("#frame iframe")
    frame.locator("body[data-ready]").wait_for()
    assert frame.locator("h1").inner_text() == "Sequential, step 1"  # the graph of step 100 is the same
    assert "Step 100: 17 nodes" in page.locator("#graph-title").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#frame iframe").count() == 0


def test_hostile_names_are_text(tmp_path: Path, open_page: Open) -> None:
    name = "</script><img src=x onerror=alert(1)>"
    net = nn.ModuleDict({name: nn.Linear(2, 1), "spare</td>": nn.Linear(2, 1)})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with gradviz.watch(net, optimizer, out=tmp_path):
        net[name](torch.ones(1, 2)).sum().backward()
        optimizer.step()
    page = open_page(tmp_path / "index.html")
    assert page.title() == "ModuleDict: watched run" and page.locator("img").count() == 0
    assert page.locator("#modules li").first.inner_text() == name
    assert "spare</td>" in page.locator("#looks").inner_text()


def test_two_optimizers_have_two_curves(tmp_path: Path, open_page: Open) -> None:
    net = network()
    first, second = torch.optim.Adam(net[0].parameters()), torch.optim.SGD(net[3].parameters(), lr=0.1)
    with gradviz.watch(net, out=tmp_path):
        for _ in range(5):
            for optimizer in (first, second):
                net.zero_grad()
                net(torch.randn(4, 6)).square().mean().backward()
                optimizer.step()
    page = open_page(tmp_path / "index.html")
    curves = page.locator("#loss path.curve")
    assert [curves.nth(i).get_attribute("d").count("L") for i in range(2)] == [4, 4]
    assert page.locator("#loss-title").inner_text() == "LossAdamSGD"
