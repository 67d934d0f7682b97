"""What a default picture costs, over the programs of `tests/real`, and what it shows.

    python -m benchmarks.pictures [--repeats N] [--only WORD] [--graphs FOLDER]

Each program is recorded once, by the command line, as a JSON file in FOLDER (kept for the next time) or in a temporary one.
Then, with all imports done, for each graph: milliseconds of processor time to fold, draw and write its default SVG, the least of
N (3) runs; how often it was laid out; boxes; and the part of all ops in the largest closed module. To compare two versions, run
both on one FOLDER.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.output import render, sketched
from gradviz.graph import Graph
from gradviz.layout import layered

PROGRAMS = Path(__file__).parent.parent / "tests" / "real"


class Cost(NamedTuple):
    """Of one picture."""

    milliseconds: float
    layouts: int
    boxes: int
    closed: float  # the part of all ops that the largest closed module has


def programs(only: str) -> list[Path]:
    """The scripts, those of one folder as its `train.py`."""
    found = [
        path
        for pattern in ("*/*.py", "*/*/train.py")
        for path in PROGRAMS.glob(pattern)
    ]
    return sorted(
        path for path in found if path.name != "__init__.py" and only in str(path)
    )


def recorded(script: Path, folder: Path) -> Graph | None:
    """The graph of a program, from the folder where it is there; None where the program cannot run here."""
    path = (
        folder
        / f"{script.parent.name if script.name == 'train.py' else script.stem}.json"
    )
    if not path.exists():
        subprocess.run(
            [sys.executable, "-m", "gradviz", "render", str(script), "-o", str(path)],
            capture_output=True,
        )
    return gradviz.load(str(path)) if path.exists() else None


def cost(graph: Graph, repeats: int) -> Cost:
    """Measure the default picture of a graph."""
    place, calls = layered.place, list[int]()
    layered.place = lambda *given, **more: calls.append(1) or place(*given, **more)  # type: ignore[assignment,func-returns-value]
    try:
        seconds = []
        for _ in range(repeats):
            calls.clear()
            began = time.process_time()
            render(graph, "svg")
            seconds.append(time.process_time() - began)
    finally:
        layered.place = place
    shown = sketched(graph, Options()).folding
    ops = max(len(graph.nodes) - len(graph.leaves), 1)
    closed = max(
        (group.ops for group in shown.groups if group.kind == "module"), default=0
    )
    return Cost(1e3 * min(seconds), len(calls), shown.size, closed / ops)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pictures", description="Measure default pictures."
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--graphs")
    options = parser.parse_args()
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.graphs or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for script in programs(options.only):
            graph = recorded(script, folder)
            if graph is not None:
                costs.append(cost(graph, options.repeats))
                line = "{:8.1f} ms {:3} layouts {:4} boxes {:5.0%} closed".format(
                    *costs[-1]
                )
                print(f"{script.relative_to(PROGRAMS).as_posix():44}{line}", flush=True)
    if costs:
        print(
            f"median of {len(costs)}: {median(one.milliseconds for one in costs):.1f} ms",
            end=", ",
        )
        print(
            f"at most {max(one.layouts for one in costs)} layouts, {sum(one.boxes for one in costs):,} boxes in all"
        )
    return 0 if costs else 1


if __name__ == "__main__":
    raise SystemExit(main())
