"""What once grew faster than the graph, at two sizes.

    python -m benchmarks.growth [REPEATS]

For each row processor seconds at both sizes, the least of REPEATS (3), and how much more the larger one takes: about four times, as
it is four times as large. Last column is the larger one as a multiple of `saved` on the same graph, with the walk that it needs. A
check of parameters unused in a long file is to stay below 3, that of many modules below 2. The last row is also told in megabytes.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.graph import Graph

LAYER = """
class Layer{i}(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.left = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        for _ in range(1):
            x = x + self.used(x)
        return x
"""


class Made(NamedTuple):
    """A loss and its model."""

    loss: torch.Tensor
    model: nn.Module

    def read(self) -> object:
        """The least that a look at it does."""
        return gradviz.saved(gradviz.walk(self.loss, model=self.model))


def of(model: nn.Module) -> Made:
    """One call of a model."""
    return Made(model(torch.ones(1, 2)).sum(), model)


def long_file(layers: int) -> Made:
    """Layers with a class each, in one file, of which each leaves a part unused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"layers{layers}.py"
        classes = "".join(LAYER.format(i=i) for i in range(layers))
        path.write_text("from torch import nn\n" + classes)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = of(
            nn.Sequential(*(getattr(module, f"Layer{i}")() for i in range(layers)))
        )
        check(made)  # the text is in memory from now on
    return made


def modules(count: int) -> Made:
    """Many modules beside each other."""
    return of(nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))))


def nested(depth: int) -> Made:
    """One layer in so many containers."""
    model: nn.Module = nn.Linear(2, 2)
    for _ in range(depth):
        model = nn.Sequential(model)
    return of(model)


def uses(count: int) -> Made:
    """One tensor that is used often."""
    x = torch.ones(4, requires_grad=True) * 2
    return Made(torch.stack([x * float(i) for i in range(count)]).sum(), nn.Module())


def check(made: Made) -> object:
    return gradviz.check(made.loss, model=made.model)


def recorded(made: Made) -> Graph:
    with gradviz.record() as recording:
        loss = made.model(torch.ones(1, 2)).sum()
    return recording.graph(loss, model=made.model)


def folded_picture(made: Made) -> object:
    return render(recorded(made), "svg")


def full_picture(made: Made) -> object:
    return render(gradviz.walk(made.loss), "svg", Options(depth="all"))


ROWS: tuple[tuple[str, Callable[[int], Made], Callable[[Made], object], int], ...] = (
    ("check, unused in a long file", long_file, check, 300),
    ("check, modules", modules, check, 5000),
    ("record, nested modules", nested, recorded, 120),
    ("picture, nested modules", nested, folded_picture, 120),
    ("picture, every use of one tensor", uses, full_picture, 1000),
)
"""What it is called, what is made, what is measured of it, and the larger size."""


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The least processor seconds."""
    least = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        job()
        least = min(least, time.process_time() - began)
    return least


def main() -> int:
    """Measure and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'':34} {'n':>6} {'n/4 s':>8} {'n s':>8} {'times':>6} {'x saved':>8}")
    for name, make, job, size in ROWS:
        small, large = make(size // 4), make(size)
        job(small)
        times = [seconds(lambda: job(made), repeats) for made in (small, large)]  # noqa: B023 -- called at once
        read = seconds(large.read, repeats)
        print(
            f"{name:34} {size:>6,} {times[0]:>8.3f} {times[1]:>8.3f} {times[1] / times[0]:>6.1f} {times[1] / read:>8.1f}",
            flush=True,
        )
    tracemalloc.start()
    job(large)
    print(f"{'':34} {tracemalloc.get_traced_memory()[1] / 1e6:.0f} MB at most")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
