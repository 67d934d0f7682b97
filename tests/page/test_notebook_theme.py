"""What a notebook shows has the theme of the notebook, whatever the reader's setting: pictures, tables, the page in its frame."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gradviz
from tests.rows import every_other

pytestmark = pytest.mark.slow

DARK, LIGHT = "rgb(22, 24, 28)", "rgb(255, 255, 255)"
MARKS = {
    '<body data-jp-theme-light="false">': DARK,
    '<body data-jp-theme-light="true">': LIGHT,
    '<body data-theme="dark">': DARK,
    '<body data-theme="light">': LIGHT,
    '<body class="vscode-dark">': DARK,
    '<body class="vscode-light">': LIGHT,
    '<body class="vscode-high-contrast vscode-high-contrast-light">': LIGHT,
}
"""How notebooks mark an element around all outputs, and the background that a picture has there."""

net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
loss = net[0](torch.ones(1, 2)).sum()


@pytest.mark.parametrize("reader", ["light", "dark"])
def test_pictures_and_tables(browser: Any, reader: str) -> None:
    picture = gradviz.walk(loss, model=net)._repr_mimebundle_()["image/svg+xml"]
    table: Any = gradviz.check(loss, model=net)
    page = browser.new_page(color_scheme=reader)
    grounds, words = {}, {}
    for mark in ("<body>", *MARKS):
        page.set_content(f"{mark}{picture}{table._repr_html_()}")
        grounds[mark] = page.evaluate("getComputedStyle(document.querySelector('svg')).backgroundColor")
        words[mark] = page.evaluate("getComputedStyle(document.querySelector('pre span')).color")
    page.close()
    assert grounds == {"<body>": DARK if reader == "dark" else LIGHT, **MARKS}
    tones = {ground: {words[mark] for mark in grounds if grounds[mark] == ground} for ground in (DARK, LIGHT)}
    assert len(tones[DARK]) == len(tones[LIGHT]) == 1 and tones[DARK] != tones[LIGHT]


@pytest.mark.parametrize("options, light", every_other([({}, "dark"), ({"theme": "light"}, "light")]))
def test_the_page_in_its_frame(browser: Any, options: dict[str, Any], light: str) -> None:
    shown = gradviz.show(gradviz.walk(loss, model=net), **options)._repr_html_()
    page = browser.new_page(color_scheme="light")
    themes = []
    for mark in ('data-jp-theme-light="false"', 'class="vscode-light"'):
        page.set_content(f"<body {mark}>{shown}")
        frame = page.wait_for_selector("iframe").content_frame()  # of `page.frames`, one may be the last round's
        frame.wait_for_selector("body[data-ready]")
        frame.locator("html[data-theme]").wait_for(state="attached")
        themes.append(frame.evaluate("document.documentElement.dataset.theme"))
        assert frame.evaluate("getComputedStyle(document.documentElement).colorScheme") == themes[-1]
    page.close()
    assert themes == [light, "light"]
