"""What commands of gradviz add to whole scripts: the programs of tests/real, from start to end.

    python -m benchmarks.whole_scripts [COUNT] [REPEATS]

Prints the processor seconds of each of COUNT (22) programs by itself, and the ratio to them of the same under `render`, `saved` and
`check`, each to the end of the script, imports and output counted, the best of REPEATS (1); then the medians of the ratios.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.check import processor_seconds

PROGRAMS = sorted(Path(__file__).parents[1].glob("tests/real/programs/*.py"))
COMMANDS = {
    "render": ("--continue", "-o", "{picture}"),
    "saved": ("--continue",),
    "check": ("--continue", "--fail-on", "never"),
}


def ratios(program: Path, picture: str, repeats: int) -> dict[str, float]:
    """Print the row of one program."""

    def seconds(*command: str) -> float:
        return min(processor_seconds(*command) for _ in range(repeats))

    alone = seconds(str(program))
    found: dict[str, float] = {}
    for name, options in COMMANDS.items():
        words = [option.format(picture=picture) for option in options]
        found[name] = seconds("-m", "gradviz", name, str(program), *words) / alone
    print(
        f"{program.stem:<32} {alone:>9.2f}",
        *(f"{ratio:>7.2f}" for ratio in found.values()),
        flush=True,
    )
    return found


def main() -> int:
    """Print the table."""
    count, repeats = (*map(int, sys.argv[1:]), *(22, 1)[len(sys.argv) - 1 :])
    chosen = PROGRAMS[:: max(1, len(PROGRAMS) // count)][:count]  # some of every letter
    print(f"{'program':<32} {'alone s':>9}", *(f"{name:>7}" for name in COMMANDS))
    with tempfile.TemporaryDirectory() as folder:
        rows = [ratios(program, f"{folder}/graph.svg", repeats) for program in chosen]
    medians = (statistics.median(row[name] for row in rows) for name in COMMANDS)
    print(
        f"{f'median of {len(rows)} programs':<42}",
        *(f"{median:>7.2f}" for median in medians),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
