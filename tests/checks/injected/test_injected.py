"""Fifteen faults, drawn by a seed that is printed: most are found, and nothing is said of the correct programs."""

from __future__ import annotations

import os
import random

import pytest

from tests.checks.injected.pairs import FOLDERS, alarms, original, outcomes, pairs, programs
from tests.rows import every_other
from tests.walker.graphs import needs_raw

SEED = int(os.environ.get("INJECTED_SEED", "0"))
DRAWN, LEAST = 15, 0.6


@pytest.mark.slow
@needs_raw
def test_most_of_fifteen_faults_are_found() -> None:
    print(f"INJECTED_SEED={SEED}")
    quick = [program for program in programs() if program.parent == FOLDERS[0]]
    chosen = random.Random(SEED).sample(list(pairs(SEED, quick)), DRAWN)
    real = [one for one in outcomes(chosen) if one.real]
    missed = [f"{one.pair.operator.name}: {one.pair.program.stem}" for one in real if not one.found]
    assert len(real) > DRAWN / 2
    assert len(missed) <= (1 - LEAST) * len(real), missed


@pytest.mark.slow
@pytest.mark.parametrize("program", every_other(sorted(FOLDERS[0].glob("*.py"))), ids=lambda program: program.stem)
def test_nothing_is_said_of_a_correct_program(program, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "script.py"
    path.write_text(original(program))
    monkeypatch.setattr("sys.argv", [str(path)])
    assert alarms(path) == []
