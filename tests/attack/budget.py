"""How long attacks go on, from which seed, and what they tried.

`GRADVIZ_ATTACK_SECONDS=600` lets each of them go on for so long; `GRADVIZ_ATTACK_SEED=7` begins elsewhere.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest

SECONDS = float(os.environ.get("GRADVIZ_ATTACK_SECONDS", "8"))
SEED = int(os.environ.get("GRADVIZ_ATTACK_SEED", "1"))
BOUND = 30.0
"""Seconds that one try may take on a busy machine."""


def tries(least: int) -> Iterator[tuple[int, random.Random]]:
    """Seeds with their random numbers, until the time is over, but at least so many. The same seed always is the same try."""
    began = time.monotonic()
    seed = SEED
    while seed < SEED + least or time.monotonic() - began < SECONDS:
        yield seed, random.Random(seed)
        seed += 1


def report(request: pytest.FixtureRequest, what: str, count: int) -> None:
    """Count what was tried, for the last lines of the run."""
    request.node.user_properties.append((f"tried: {what}", count))
