"""What the interactive page costs, in a real Chromium without a graphics card.

    python -m benchmarks.page [--repeats N] [--only WORD] [--million]

For each graph: seconds of processor time to write the file and its size; then, in the browser, the time until the first view is
drawn (from the start of navigation), and medians over N (9) runs of: opening one group and drawing, opening every group for the
first time and drawing, and one frame of panning with everything open. Milliseconds by the browser's clock, so other work on the
machine counts; a column in brackets is the ratio to the GPT of 48 blocks.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.models import build, gpt
from gradviz.graph import Edge, Graph, Leaf, Node, Root, TensorInfo

FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
    ),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ),
)
MEASURE = """(repeats) => {
    const { app } = gradviz, median = (times) => times.sort((a, b) => a - b)[times.length >> 1];
    const timed = (act) => {
        const began = performance.now();
        act();
        gradviz.drawStage();
        document.getElementById('canvas').getContext('2d').getImageData(0, 0, 1, 1); // waits until it is painted
        return performance.now() - began;
    };
    app.firstView();
    const last = app.model.groups - 1, toggle = [], pan = [];
    let group = 1;
    while (group < last && app.model.depth[group] < 2) group++;
    const all = timed(() => app.openAll());
    for (let i = 0; i < 2 * repeats; i++) toggle.push(timed(() => app.toggle(Math.min(group, last))));
    for (const k of [1, 0.3, 0.05]) {
        app.zoom(k / app.camera.k);
        for (let i = 0; i < 3 * repeats; i++) pan.push(timed(() => app.pan(i % 2 ? 37 : -37, -53)));
    }
    const worst = Math.max(...pan);
    return { all, toggle: median(toggle), pan: median(pan), worst, groups: app.model.groups };
}"""


def chain(length: int) -> Graph:
    """Ops in a row, made by hand: what a loop of that many turns records."""
    info = TensorInfo((64,), "float32", "cpu")
    ops = ("MulBackward0", "AddBackward0", "TanhBackward0")
    nodes = [Node(i, ops[i % 3], (info,), length - i) for i in range(length)]
    edges = [Edge(i, i + 1, 0, 0) for i in range(length)]
    leaf = Leaf(length, ("x",), info)
    return Graph(
        (*nodes, Node(length, "AccumulateGrad", (info,))),
        tuple(edges),
        (leaf,),
        (Root(0, 0, "y", info),),
        title="chain",
    )


def recorded(blocks: int) -> Graph:
    """A GPT of that many blocks, with module calls and lines."""
    built = build(gpt(blocks), recorded=True)
    graph: Graph = built.recording.graph(built.loss)
    return graph


CASES = {
    "GPT, 48 blocks": lambda: recorded(48),
    "GPT, 400 blocks": lambda: recorded(400),
    "GPT, 1,725 blocks": lambda: recorded(1725),
    "chain, 100,000": lambda: chain(100_000),
}


def measured(browser: Any, path: Path, repeats: int) -> dict[str, float]:
    """What the browser needs, the median of three loads for the first view."""
    found: dict[str, float] = {}
    firsts = []
    for load in range(3):
        page = browser.new_page(
            viewport={"width": 1440, "height": 900}, reduced_motion="reduce"
        )
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]", timeout=120_000)
        firsts.append(page.evaluate("gradviz.drawnAt"))
        if load == 2:
            found = page.evaluate(MEASURE, repeats)
        page.close()
    return {**found, "first": sorted(firsts)[1]}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--only", default="", help="graphs with this word in their name"
    )
    parser.add_argument(
        "--million", action="store_true", help="also a chain of 1,000,000 ops"
    )
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    cases = {
        **CASES,
        **({"chain, 1,000,000": lambda: chain(1_000_000)} if options.million else {}),
    }
    base: dict[str, float] = {}
    head = f"{'graph':<20} {'nodes':>10} {'groups':>8} {'write s':>8} {'MB':>6} {'first ms':>9}"
    print(f"{head} {'open all':>9} {'toggle ms':>16} {'pan ms':>14} {'worst':>6}")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        for name, make in cases.items():
            if options.only.lower() not in name.lower():
                continue
            graph, path = make(), Path(folder) / "page.html"
            began = time.process_time()
            graph.save(str(path))
            seconds = time.process_time() - began
            one = measured(browser, path, options.repeats)
            base = base or one
            size = path.stat().st_size / 1e6
            ratios = [one[what] / base[what] for what in ("toggle", "pan")]
            print(
                f"{name:<20} {len(graph.nodes):>10,} {one['groups']:>8,} {seconds:>8.1f} {size:>6.2f}"
                f" {one['first']:>9.0f} {one['all']:>9.0f} {one['toggle']:>8.1f} ({ratios[0]:>4.1f})"
                f" {one['pan']:>6.1f} ({ratios[1]:>4.1f}) {one['worst']:>6.1f}",
                flush=True,
            )
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
