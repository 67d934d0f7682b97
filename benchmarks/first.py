"""The first default picture of a process beside what a peer takes for the same model.

    python -m benchmarks.first [--runs N] [--only WORD]

The graph of a script is recorded, and drawn as SVG in a process of its own, N times (5) in turn with the peer. Processor
seconds with one thread, medians: of gradviz from the recorded graph to the file, of the peer from the loss (torchviz) or the
model (torchvista) to its file. What a tool imports is not counted. The ratio is the median of those of the pairs: a machine
may change its speed between two of them, by half and more.
"""

from __future__ import annotations

import argparse
import os
from statistics import median
from typing import NamedTuple

from benchmarks.__main__ import measured

LIMIT = 60.0  # seconds for one picture
OURS = "gradviz, folded"


class Row(NamedTuple):
    """The peer of a model, and at most how many times its seconds a picture should take."""

    peer: str
    most: float


ROWS = {
    "ResNet, 50 layers": Row("torchviz", 1.0),
    "U-Net": Row("torchviz", 1.0),
    "GPT, 12 blocks": Row("torchvista", 1.0),
    "LSTM, 20 steps": Row("torchvista", 1.5),
    "LSTM, 100 steps": Row("torchvista", 1.5),
    "mixture of experts": Row("torchvista", 1.5),
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first",
        description="Measure first pictures beside those of peers.",
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    # others in the pool of threads that runs the model wait busily
    os.environ["OMP_NUM_THREADS"] = "1"

    for model, row in ROWS.items():
        if options.only in model:
            print(compared(model, row, options.runs), flush=True)
    return 0


def compared(model: str, row: Row, runs: int) -> str:
    """One line of the table."""
    ours, theirs = list[float](), list[float]()
    for _ in range(runs):
        picture, other = measured(model, OURS, LIMIT), measured(model, row.peer, LIMIT)
        for found in (picture, other):
            if "error" in found:
                return f"{model:20} {found['tool']}: {found['error']}"
        ours.append(picture["draw"])
        theirs.append(other["total"])

    ratio = median(took / peer for took, peer in zip(ours, theirs, strict=True))
    seconds = f"{median(ours):.3f} s, {row.peer} {median(theirs):.3f} s"
    return f"{model:20} {seconds}: {ratio:.2f} times, asked {row.most:g}"


if __name__ == "__main__":
    raise SystemExit(main())
