"""All pairs: `python -m tests.checks.injected [--seed 0] [OPERATOR ...]` prints how many faults are found.

The table is in benchmarks/README.md. With `--missed`, what was said of each that was not found, or not at its line.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

from tests.checks.injected.pairs import Outcome, outcomes, pairs, programs


def row(name: str, members: list[Outcome]) -> str:
    """| operator | faults | found | line | advice | and those held back |"""
    real = [one for one in members if one.real]
    apart = [one for one in real if one.pair.held_back]
    found = f"{sum(one.found for one in real)} | {sum(one.line for one in real)} | {sum(one.heals for one in real)}"
    return f"| {name} | {len(real)} | {found} | {sum(one.found for one in apart)} of {len(apart)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--missed", action="store_true")
    given = parser.parse_args()
    drawn = pairs(given.seed, programs())
    chosen = [pair for pair in drawn if not given.operators or pair.operator.name in given.operators]
    groups = defaultdict(list)
    for outcome in outcomes(chosen):
        groups[outcome.pair.operator.name].append(outcome)

    columns = "operator | faults | found | at its line | advice undoes it | held back, found"
    print(f"seed {given.seed}\n\n| {columns} |\n|{'---|' * 6}")
    for name, members in groups.items():
        print(row(name, members))
    print(row("all", [one for members in groups.values() for one in members]))
    for one in (
        one for members in groups.values() for one in members if given.missed and one.real and not one.pair.held_back
    ):
        if not (one.found and one.line and one.heals):
            print(
                f"\n{one.pair.operator.name}: {one.pair.program.stem}, lines {sorted(one.pair.lines)[:4]}: {one.said or 'nothing'}"
            )


if __name__ == "__main__":
    main()
