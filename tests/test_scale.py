"""Large graphs: every output is written, nothing grows faster than the graph, and nothing ends the process.

Work is counted, not timed: boxes, pixels, bytes, calls. `pytest -m million` runs the same on a million nodes, within the
limits of time and memory that the README states.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.fold.export import fold
from gradviz.fold.fold import PAGE
from gradviz.graph import Edge, Graph, Node, Root, Scope
from gradviz.graph.files import load
from tests.builders import accumulate, chain, leaf, tensor

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parent.parent
CHAIN = """
import torch, gradviz, resource, sys, time
x = torch.ones(3, requires_grad=True)
y = x
for _ in range({length}):
    y = torch.tanh(y)
begin = time.process_time()
graph = gradviz.walk(y)
for path, options in {saved}:
    graph.save(path, **options)
print(len(graph.nodes), time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
del graph, y
"""


def run(code: str, folder: Path, timeout: float = 300) -> list[float]:
    """Run code in a new process, which must end well, and give the numbers it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [float(word) for word in done.stdout.split()]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def recurrent(steps: int) -> Graph:
    """A cell of three ops called `steps` times, with two states and two weights."""
    ops = ("AddmmBackward0", "SigmoidBackward0", "MulBackward0")
    weights = (3 * steps, 3 * steps + 1)
    nodes: list[Node] = []
    edges: list[Edge] = []
    for step in range(steps):  # from the last step to the first
        first, after = 3 * step, 3 * (step + 1)
        numbers = (3 * (steps - step) - i for i in range(3))
        nodes += [Node(first + i, op, (tensor(2, 3),), n, scope=step) for i, (op, n) in enumerate(zip(ops, numbers))]
        last = step == steps - 1
        edges += [Edge(first, first + 1, 0, 0), Edge(first, weights[0], 0, 1), Edge(first + 1, first + 2, 0, 0)]
        edges += [Edge(first + 2, weights[1] if last else after, 0, 0)]
        edges += [] if last else [Edge(first + 2, after + 1, 0, 1)]
    scopes = tuple(Scope("cell", "Cell", steps - step, None) for step in range(steps))
    leaves = (leaf(weights[0], "cell.weight"), leaf(weights[1], "cell.state"))
    nodes += [accumulate(weight) for weight in weights]
    return Graph(tuple(nodes), tuple(edges), leaves, (Root(0, 0, "loss", tensor(2, 3)),), scopes)


# -- growth ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [10, 100, 2000])
def test_a_default_picture_stays_small(steps: int) -> None:
    graph = recurrent(steps)
    folded = fold(graph)
    assert len(folded.nodes) <= PAGE.boxes
    assert sum(len(node.group.nodes) if node.group else 1 for node in folded.nodes) == len(graph.nodes)


@pytest.mark.parametrize(("format", "most"), [("svg", 480), ("dot", 130), ("json", 200), ("txt", 60)])
def test_bytes_per_node_stay_the_same(format: str, most: int) -> None:
    options = Options(max_rows=0) if format == "txt" else Options(depth="all")
    sizes = [len(render(chain(length), format, options)) / length for length in (2_000, 16_000)]
    assert sizes[1] <= min(1.15 * sizes[0], most)  # numbers get longer


def calls(graph: Graph, options: Options) -> int:
    """How many Python functions of gradviz run to draw a graph as SVG."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        render(graph, "svg", options)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("depth", ["all", "auto"])
def test_twice_the_steps_are_about_twice_the_work(depth: str) -> None:
    options = Options(depth=depth)
    calls(recurrent(10), options)  # imports and caches
    small, large = (calls(recurrent(steps), options) for steps in (400, 800))
    assert large < 2.3 * small


# -- real graphs, each in a process of its own -------------------------------------------------------------------------


@pytest.mark.long
def test_a_chain_of_100_000_is_folded_and_drawn_in_full(tmp_path: Path) -> None:
    folded, full = ["small.svg", "small.dot", "small.md"], ["a.svg", "a.dot", "a.txt", "a.json"]
    saved = [*((path, {}) for path in folded), *((path, {"depth": "all"}) for path in full)]
    nodes, _, _ = run(CHAIN.format(length=100_000, saved=saved), tmp_path)
    assert nodes == 100_001
    assert all(0 < (tmp_path / path).stat().st_size < 100_000 for path in folded)
    drawn, dot, tree, _ = ((tmp_path / path).read_text(encoding="utf-8") for path in full)
    assert drawn.count(">tanh</text>") == 100_000 and drawn.endswith("</svg>\n")
    assert dot.count(" -> ") == 100_001  # and one to the output
    assert tree.count("tanh") >= 100_000
    assert len(load(tmp_path / "a.json").nodes) == 100_001


@pytest.mark.parametrize("format", ["png", "pdf"])
def test_what_is_too_large_for_a_format_is_refused_with_advice(format: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gradviz", "render", "a.json", "--depth", "all", "-o", f"a.{format}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        input=chain(3000).save(str(tmp_path / "a.json")),
    )
    assert done.returncode == 2, done.stderr
    assert "too large" in done.stderr and "SVG" in done.stderr and "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["a.json"]


# -- a million nodes ---------------------------------------------------------------------------------------------------


@pytest.mark.million
@pytest.mark.parametrize(
    ("path", "options"), [("a.svg", {}), ("a.svg", {"depth": "all"}), ("a.json", {}), ("a.dot", {}), ("a.txt", {})]
)
def test_a_million_nodes(path: str, options: dict[str, str], tmp_path: Path) -> None:
    nodes, seconds, memory = run(CHAIN.format(length=1_000_000, saved=[(path, options)]), tmp_path, 900)
    assert nodes == 1_000_001
    assert seconds < 90
    assert memory < 4 * 1024**3


@pytest.mark.million
def test_a_million_nodes_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(
        "import torch\nx = torch.ones(3, requires_grad=True)\ny = x\nfor _ in range(1_000_000):\n    y = y + 1\ny = y.sum()\n"
    )
    for command in ("tree", "render"):
        done = subprocess.run(
            [sys.executable, "-m", "gradviz", command, "chain.py"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(done.stdout.splitlines()) < 1000 or command == "tree"
