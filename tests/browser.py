"""A real browser for the tests of the page: Debian's Chromium, or the one that Playwright knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradviz.graph import Graph

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
Open = Callable[..., Any]
"""Opens the page of a graph, or one that is written: `open_page(graph, size=(1440, 900), **save options)`."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="no browser: playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("GRADVIZ_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with api.sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        except api.Error as error:
            pytest.skip(f"no browser: Chromium does not start ({str(error).splitlines()[0]})")
        yield started
        started.close()


@pytest.fixture(scope="session")
def tabs(browser: Any) -> list[Any]:
    """Pages that tests of this process have left: to open a new one takes longer than most tests do."""
    return []


@pytest.fixture
def open_page(browser: Any, tabs: list[Any], tmp_path: Path) -> Iterator[Open]:
    used: list[Any] = []
    problems: list[str] = []
    listeners = {
        "pageerror": lambda error: problems.append(str(error)),
        "console": lambda message: problems.append(message.text) if message.type == "error" else None,
        "request": lambda request: problems.append(request.url) if request.url.startswith("http") else None,
    }

    def opened(graph: Graph | Path, size: tuple[int, int] = (1440, 900), hash: str = "", **options: Any) -> Any:
        path = graph if isinstance(graph, Path) else tmp_path / f"page{len(used)}.html"
        if not isinstance(graph, Path):
            graph.save(str(path), **options)
        viewport = {"width": size[0], "height": size[1]}
        if tabs:
            page = tabs.pop()
            page.set_viewport_size(viewport)
        else:
            page = browser.new_context(viewport=viewport, reduced_motion="reduce").new_page()
        used.append(page)
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(path.as_uri() + hash)
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    for page in used:
        page.goto("about:blank")
        page.mouse.move(0, 0)
        page.mouse.up()
        page.keyboard.up("Shift")
        page.emulate_media(media="null")
        page.context.clear_permissions()
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        tabs.append(page)
    assert not problems
