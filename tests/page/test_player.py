"""The backward pass as the page plays it, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import Open
from tests.builders import GRAPHS
from tests.page.graphs import blocks

pytestmark = pytest.mark.slow


def words(page: Any) -> str:
    return str(page.inner_text("#step-words"))


def test_a_step_is_what_is_visible(open_page: Open) -> None:
    """With everything closed, all functions of a module are one step; open, each is one."""
    page = open_page(blocks(30))
    page.click("#close-all")
    page.click("#play-open")
    assert "1 / 1" in words(page) and "180 functions" in words(page)
    page.click("#open-all")
    assert page.get_attribute("#step", "max") == "179"
    assert page.evaluate("gradviz.app.step") == 179  # it stays where it was


def test_it_goes_into_groups_and_closes_them_again(open_page: Open) -> None:
    page = open_page(blocks(30))
    page.click("#close-all")
    page.click("#play-open")
    page.check("#into")
    page.evaluate("gradviz.player.go(0)")
    running = "gradviz.facts.cellOf[gradviz.facts.c.stepNode[gradviz.app.step]]"
    for _ in range(8):
        page.keyboard.press("ArrowRight")
        assert page.evaluate(f"gradviz.app.layout.shown({running}) === {running}")
        assert 0.6 <= page.evaluate("gradviz.app.camera.k") <= 2
    assert "9 / 180" in words(page)
    page.keyboard.press("Escape")
    assert page.is_hidden("#player")
    assert page.evaluate("[...gradviz.app.layout.open].filter(Boolean).length") == 1  # only the page itself


def test_keys_play_without_focus(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert "2 / 4" in words(page)
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Pause"
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Play"


def test_a_function_waits_for_its_second_gradient(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    page.click("#play-open")
    page.click("#step-on")
    waiting = "[0, 1, 2, 3].map(node => gradviz.facts.arrived(node, gradviz.app.step).join(' of '))"
    assert "1 of 2" in page.evaluate(waiting)
    page.click("#step-on")
    assert "1 of 2" not in page.evaluate(waiting)


def test_the_curve_says_what_is_alive(open_page: Open) -> None:
    page = open_page(GRAPHS["diamond"])
    page.click("#play-open")
    box = page.locator("#curve").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 30)
    assert "function 4:" in page.inner_text("#alive") and "of gradients" in page.inner_text("#alive")
    page.mouse.click(box["x"] + box["width"] - 10, box["y"] + 30)
    assert "4 / 4" in words(page)
