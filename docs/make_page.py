"""Writes the sample page and the pictures of docs/page.md: `python docs/make_page.py`, with gradviz's test extra and Chromium.

The page is what `gradviz render samples/gpt.py --color grad -o sample_page.html -- --layers 12` writes, with files named
relative to the repository. It is part of the site, which makes it (make_site.py), and not of the repository. The pictures
are what a browser shows of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PICTURES = DOCS / "pictures"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
FIND = 'gradviz.search("softmax").find((item) => item >= 0)'
VIEWS = {
    "page.png": f"gradviz.app.visit({FIND})",
    "page_backward.png": (
        f"const box = {FIND}; gradviz.app.visit(box); gradviz.app.select(null); gradviz.player.show(true);"
        "gradviz.player.reach(gradviz.facts.c.stepNode.indexOf(gradviz.facts.nodeOf(box)))"
    ),
}


def write(page: Path) -> None:
    """The page, without where the repository lies on this machine."""
    graph = page.with_suffix(".json")
    sample = ["gpt.py", "--color", "grad", "-o", str(graph), "--", "--layers", "12"]
    _render(sample, ROOT / "samples")
    text = graph.read_text(encoding="utf-8")
    graph.write_text(text.replace(f"{ROOT}{os.sep}", ""), encoding="utf-8")
    _render([str(graph), "-o", str(page)], ROOT)
    graph.unlink()


def _render(words: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gradviz", "render", *words]
    subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
    )


def main() -> None:
    """Write the page, and draw its pictures."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        sample = Path(folder) / "sample_page.html"
        write(sample)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        page = browser.new_page(
            viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
        )
        page.goto(sample.as_uri())
        page.wait_for_selector("body[data-ready]")
        for name, act in VIEWS.items():
            page.evaluate(f"{{ {act} }}")
            page.wait_for_timeout(300)
            page.screenshot(path=str(PICTURES / name))
        browser.close()


if __name__ == "__main__":
    main()
