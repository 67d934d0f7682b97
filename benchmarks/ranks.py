"""What merging the graphs of many ranks costs, by their number.

    python -m benchmarks.ranks [--ranks 1,8,64] [--nodes 100000]

The files are simulated: one graph of that many nodes is written, and changed in the text for each rank: rank and device, and in
the rows that say "differ", two ops that no other rank has. For each number of ranks, in a process of its own: processor seconds
and seconds by the clock until the report is printed, and the peak of memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gradviz.graph import (
    Edge,
    Graph,
    Leaf,
    Node,
    Process,
    Root,
    SavedTensor,
    Scope,
    SourceLine,
    Storage,
    TensorInfo,
)

OPS = (
    "MulBackward0",
    "AddmmBackward0",
    "TBackward0",
    "GeluBackward0",
    "NativeLayerNormBackward0",
)
KINDS = ("alike", "differ")


def simulated(count: int) -> Graph:
    """Rank 0's graph: blocks of 100 nodes, every tenth a parameter, with modules, lines and saved tensors."""
    info = TensorInfo((8, 128), "float32", "cuda:0")
    lines = [
        SourceLine("/code/model.py", line, "forward", "x = self.f(x)")
        for line in range(10, 60)
    ]
    nodes, edges, leaves = [], [], []
    for i in range(count):
        scope, names = 1 + i // 100, (f"blocks.{i // 100}.w{i % 100}",)
        if i % 10 == 9:
            nodes.append(Node(i, "AccumulateGrad", (info,), None, scope, names=names))
            leaves.append(Leaf(i, names, info, "parameter", storage=i))
            continue
        saved = SavedTensor("self", info, i, "activation", "live", 4096)
        nodes.append(
            Node(
                i, OPS[i % 5], (info,), count - i, scope, lines[i % 50], saved=(saved,)
            )
        )
        following = i + 2 if i % 10 == 8 else i + 1
        edges += [Edge(i, following, 0, 0)] if following < count else []
        edges += [Edge(i, i + 1, 0, 1)] if i % 10 == 8 else []
    return Graph(
        tuple(nodes),
        tuple(edges),
        tuple(leaves),
        (Root(0, 0, "loss", info),),
        (
            Scope("", "Net", 1, None),
            *(Scope(f"blocks.{i}", "Block", 1, 0) for i in range(count // 100 + 1)),
        ),
        tuple(
            Storage(i, 4096, "parameter" if i % 10 == 9 else "activation")
            for i in range(count)
        ),
        title="train.py, rank 0 of 64",
        torch="2.13.0",
        process=Process(0, 64, "machine"),
    )


def write(folder: Path, count: int, ranks: int) -> None:
    """A file for each rank and each kind."""
    text = Path(simulated(count).save(str(folder / "graph.json"))).read_text()
    for rank in range(ranks):
        own = text.replace("rank 0 of", f"rank {rank} of").replace(
            "cuda:0", f"cuda:{rank}"
        )
        own = own.replace('"process":{"rank":0', f'"process":{{"rank":{rank}')
        (folder / f"alike.rank{rank}.json").write_text(own)
        lines = own.split("\n")
        first = next(i for i, line in enumerate(lines) if line.startswith('{"op"'))
        for i in (first + 20 * (rank + 1), first + 20 * (rank + 1) + 1):
            lines[i] = lines[i].replace('"op":"', f'"op":"Rank{rank}')
        (folder / f"differ.rank{rank}.json").write_text("\n".join(lines))


def measured(files: list[str]) -> tuple[float, float, int]:
    """Seconds of a processor and by the clock, and bytes at the peak, of `gradviz merge` on these files."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "gradviz", "merge", *files], stdout=subprocess.DEVNULL
    )
    _, _, used = os.wait4(process.pid, 0)
    unit = 1 if sys.platform == "darwin" else 1024
    return (
        used.ru_utime + used.ru_stime,
        time.monotonic() - began,
        used.ru_maxrss * unit,
    )


def main() -> int:
    """Write the files, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ranks", description="Measure merging many ranks."
    )
    parser.add_argument("--ranks", default="1,8,64", help="numbers of ranks")
    parser.add_argument(
        "--nodes", type=int, default=100_000, help="of each rank's graph"
    )
    options = parser.parse_args()
    numbers = sorted(int(number) for number in options.ranks.split(","))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.nodes, numbers[-1])
        size = os.path.getsize(folder / "alike.rank0.json")
        print(f"{options.nodes:,} nodes and {size / 2**20:.1f} MiB a rank")
        print(
            f"{'ranks':>5}  {'graphs':<6}  {'processor s':>11}  {'clock s':>7}  {'peak MiB':>8}  {'s a rank':>8}"
        )
        for ranks in numbers:
            for kind in KINDS:
                processor, clock, peak = measured(
                    [str(folder / f"{kind}.rank{rank}.json") for rank in range(ranks)]
                )
                row = f"{ranks:>5}  {kind:<6}  {processor:>11.1f}  {clock:>7.1f}"
                print(
                    f"{row}  {peak / 2**20:>8.0f}  {processor / ranks:>8.2f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
