"""Writes the sample page and its pictures: `python docs/make_page.py`, in an environment with gradviz's test extra and Chromium.

The page is what `gradviz render samples/gpt.py --color grad -o sample_page.html -- --layers 12` writes, with files named relative
to the repository; the pictures are what a browser shows of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "sample_page.html"
PICTURES = DOCS / "pictures"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
FIND = 'gradviz.search(gradviz.facts, "softmax").find((item) => item >= 0)'
VIEWS = {
    "page.png": f"gradviz.app.visit({FIND})",
    "page_backward.png": (
        f"const box = {FIND}; gradviz.app.visit(box); gradviz.app.select(null); gradviz.player.show(true);"
        "gradviz.player.reach(gradviz.facts.c.stepNode.indexOf(gradviz.facts.nodeOf(box)))"
    ),
}


def write_page() -> None:
    """The page, without where the repository lies on this machine."""
    samples = DOCS.parent / "samples"
    render = [sys.executable, "-m", "gradviz", "render"]
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.json"
        subprocess.run(
            [
                *render,
                "gpt.py",
                "--color",
                "grad",
                "-o",
                str(graph),
                "--",
                "--layers",
                "12",
            ],
            cwd=samples,
            check=True,
        )
        text = graph.read_text(encoding="utf-8")
        graph.write_text(text.replace(f"{DOCS.parent}{os.sep}", ""), encoding="utf-8")
        subprocess.run([*render, str(graph), "-o", str(PAGE)], check=True)


def main() -> None:
    """Write the page, and draw its pictures."""
    write_page()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        page = browser.new_page(
            viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
        )
        page.goto(PAGE.as_uri())
        page.wait_for_selector("body[data-ready]")
        for name, act in VIEWS.items():
            page.evaluate(f"{{ {act} }}")
            page.wait_for_timeout(300)
            page.screenshot(path=str(PICTURES / name))
        browser.close()


if __name__ == "__main__":
    main()
