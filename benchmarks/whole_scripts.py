"""What `gradviz render` adds to whole scripts: the programs of tests/real, from start to end.

    python -m benchmarks.whole_scripts [COUNT] [REPEATS]

Prints the processor seconds of each of COUNT (22) programs by itself and under `render --continue`, imports and drawing counted,
the best of REPEATS (1), their ratio, and the median of the ratios.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.check import processor_seconds

PROGRAMS = sorted(Path(__file__).parents[1].glob("tests/real/programs/*.py"))


def ratio(program: Path, picture: str, repeats: int) -> float:
    """Print the row of one program."""
    render = ("-m", "gradviz", "render", "--continue", str(program), "-o", picture)
    alone, drawn = (min(processor_seconds(*command) for _ in range(repeats)) for command in ((str(program),), render))
    print(f"{program.stem:<32} {alone:>9.2f} {drawn:>9.2f} {drawn / alone:>6.2f}", flush=True)
    return drawn / alone


def main() -> int:
    """Print the table."""
    count, repeats = (*map(int, sys.argv[1:]), *(22, 1)[len(sys.argv) - 1 :])
    chosen = PROGRAMS[:: max(1, len(PROGRAMS) // count)][:count]  # some of every letter
    print(f"{'program':<32} {'alone s':>9} {'render s':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        ratios = [ratio(program, f"{folder}/graph.svg", repeats) for program in chosen]
    print(f"\nmedian of {len(ratios)} programs: {statistics.median(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
