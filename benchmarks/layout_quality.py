"""Compare our layered layout with Graphviz dot on drawings shaped like networks.

    python -m benchmarks.layout_quality [SECONDS]

Prints one row per drawing and engine: time, size on the page, crossings, and length of all edges. Both engines get the
same boxes and gaps. dot gets SECONDS (20 unless told) for each drawing; needs the `dot` program.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from gradviz.layout import Drawing, Floats, Placement
from gradviz.layout.layered import place
from tests.layout.geometry import (
    boxes_cut,
    count_crossings,
    overlapping_pairs,
    rectangles,
)
from tests.layout.networks import Network, conv, gpt, lstm, resnet

POINTS_PER_INCH = 72.0
SAMPLES = 8  # points along one piece of a spline

DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "gpt, 2 blocks": lambda: gpt(2).drawing(),
    "gpt, 12 blocks": lambda: gpt(12).drawing(),
    "resnet, 16 blocks": lambda: resnet(16).drawing(),
    "lstm, 5 steps": lambda: lstm(5).drawing(),
    "lstm, 20 steps": lambda: lstm(20).drawing(),
    "lstm, 60 steps": lambda: lstm(60).drawing(),
    "unet, 4 scales": lambda: unet(4).drawing(),
    "8 experts, 3 layers": lambda: mixture_of_experts(8, 3).drawing(),
    "densenet, 2 x 6": lambda: densenet(6, 2).drawing(),
}


def unet(depth: int) -> Network:
    """Down and up again, with a skip at every scale."""
    net = Network()
    x = net.box("input (1, 3, 64, 64)")
    skips = []
    for i in range(depth):
        x = net.box("ReluBackward0", conv(net, x, f"down.{i}"))
        skips.append(x)
        x = net.box("MaxPool2DWithIndicesBackward0", x)
    for i in reversed(range(depth)):
        x = net.box("CatBackward0", skips[i], net.box("UpsampleNearest2DBackward0", x))
        x = net.box("ReluBackward0", conv(net, x, f"up.{i}"))
    net.box("MeanBackward0", x)
    return net


def mixture_of_experts(experts: int, layers: int = 3) -> Network:
    """Every layer sends its input through all experts side by side and adds the results."""
    net = Network()
    x = net.box("input (8, 64)")
    for i in range(layers):
        gate = net.box("SoftmaxBackward0", net.linear(x, f"layer.{i}.gate"))
        outs = []
        for k in range(experts):
            h = net.linear(
                net.box("ReluBackward0", net.linear(x, f"layer.{i}.{k}.up")),
                f"layer.{i}.{k}.down",
            )
            outs.append(net.box("MulBackward0", h, net.box("SelectBackward0", gate)))
        x = net.box(
            "AddBackward0", x, net.box("SumBackward1", net.box("StackBackward0", *outs))
        )
    net.box("MeanBackward0", x)
    return net


def densenet(length: int, blocks: int = 2) -> Network:
    """Every layer of a block uses the outputs of all layers before it."""
    net = Network()
    x = conv(net, net.box("input (1, 3, 64, 64)"), "stem")
    for i in range(blocks):
        made = [x]
        for k in range(length):
            joined = net.box("CatBackward0", *made) if len(made) > 1 else x
            made.append(
                conv(
                    net,
                    net.box("ReluBackward0", net.norm(joined, f"b{i}.{k}.bn")),
                    f"b{i}.{k}.conv",
                )
            )
        x = net.box("AvgPool2DBackward0", net.box("CatBackward0", *made))
    net.box("MeanBackward0", x)
    return net


def edge_length(placement: Placement) -> float:
    """Length of all edges together."""
    steps = np.linalg.norm(np.diff(placement.points, axis=0), axis=1)
    inside = np.ones(len(placement.points), np.bool_)
    inside[placement.starts[1:-1][placement.starts[1:-1] < len(inside)]] = False
    return float(steps[inside[1:]].sum())


def main() -> int:
    """Print the table."""
    if not shutil.which("dot"):
        print("This benchmark needs the dot program of Graphviz.", file=sys.stderr)
        return 2
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    heads = (
        "drawing",
        "boxes",
        "engine",
        "seconds",
        "width",
        "height",
        "crossings",
        "length",
        "cut",
        "overlaps",
    )
    print("{:<20} {:>6} {:<8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>5} {:>8}".format(*heads))
    for name, make in DRAWINGS.items():
        drawing = make()
        for engine, run in (("layered", place), ("dot", lambda d: dot(d, limit))):
            start = time.perf_counter()
            placement = run(drawing)
            print(
                f"{name:<20} {drawing.size:>6} {engine:<8} {row(drawing, placement, time.perf_counter() - start)}"
            )
    return 0


def row(drawing: Drawing, placement: Placement | None, seconds: float) -> str:
    """The measures of one placement as text."""
    if placement is None:
        return f"{seconds:>8.3f} gave up"
    overlaps = len(overlapping_pairs(rectangles(drawing, placement)))
    return (
        f"{seconds:>8.3f} {placement.width:>8.0f} {placement.height:>8.0f} {count_crossings(placement):>9} "
        f"{edge_length(placement):>9.0f} {len(boxes_cut(drawing, placement)):>5} {overlaps:>8}"
    )


def dot(drawing: Drawing, limit: float) -> Placement | None:
    """What dot makes of a drawing, or None when it takes too long."""
    try:
        done = subprocess.run(
            ["dot", "-Tplain"],
            input=dot_source(drawing),
            capture_output=True,
            text=True,
            timeout=limit,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return None
    return read_plain(drawing, done.stdout)


def dot_source(drawing: Drawing) -> str:
    """DOT text with the boxes and gaps of a drawing."""
    gap, rank_gap = drawing.gap / POINTS_PER_INCH, drawing.rank_gap / POINTS_PER_INCH
    lines = [
        f'digraph {{ nodesep={gap} ranksep={rank_gap}; node [shape=box fixedsize=true label=""]; edge [arrowhead=none]'
    ]
    sizes = zip(
        (drawing.widths / POINTS_PER_INCH).tolist(),
        (drawing.heights / POINTS_PER_INCH).tolist(),
    )
    lines += [f"{i} [width={w} height={h}]" for i, (w, h) in enumerate(sizes)]
    lines += [f"{a} -> {b}" for a, b in drawing.edges.tolist()]
    return "\n".join([*lines, "}"])


def read_plain(drawing: Drawing, text: str) -> Placement:
    """A placement from Graphviz's plain format, with splines as polylines."""
    x, y = np.zeros(drawing.size), np.zeros(drawing.size)
    width = height = 0.0
    routes: dict[tuple[int, int], Floats] = {}
    for line in text.splitlines():
        words = shlex.split(line)
        if words[0] == "graph":
            width, height = (float(word) * POINTS_PER_INCH for word in words[2:4])
        elif words[0] == "node":
            x[int(words[1])], y[int(words[1])] = (
                float(word) * POINTS_PER_INCH for word in words[2:4]
            )
        elif words[0] == "edge":
            points = np.array(
                [float(word) for word in words[4 : 4 + 2 * int(words[3])]]
            ).reshape(-1, 2)
            routes[int(words[1]), int(words[2])] = sampled(points * POINTS_PER_INCH) * [
                1,
                -1,
            ] + [0, height]
    found = [routes[a, b] for a, b in drawing.edges.tolist()]
    starts = np.append(0, np.cumsum([len(route) for route in found])).astype(np.int64)
    return Placement(
        x, height - y, np.concatenate(found), starts, (), width, height, "dot"
    )


def sampled(control: Floats) -> Floats:
    """Points along a cubic Bezier spline with 1 + 3k control points."""
    t = np.linspace(0, 1, SAMPLES + 1)[1:, None]
    pieces = [control[:1]]
    for i in range(0, len(control) - 1, 3):
        a, b, c, d = control[i : i + 4]
        pieces.append(
            (1 - t) ** 3 * a
            + 3 * (1 - t) ** 2 * t * b
            + 3 * (1 - t) * t**2 * c
            + t**3 * d
        )
    return np.concatenate(pieces)


if __name__ == "__main__":
    sys.exit(main())
