"""Counts the processes that the user's code starts with multiprocessing: what runs in them cannot be seen from here."""

from __future__ import annotations

import re
import sys

_COUNTER = re.compile(r"count\((\d+)")


def started() -> int:
    """How many this process has started so far, those included that have ended and been forgotten."""
    counter = getattr(sys.modules.get("multiprocessing.process"), "_process_counter", None)
    found = _COUNTER.match(repr(counter))  # taking a value from it would change the names of processes to come
    return int(found[1]) - 1 if found is not None else 0


def hint(count: int) -> str:
    """What to say of them where no graph was found; "" when there were none."""
    if not count:
        return ""
    processes = "a process" if count == 1 else f"{count} processes"
    return (
        f"\nIt started {processes} of its own (multiprocessing), and a backward() in there cannot be seen from here. Have it "
        "train in its own process (many scripts have an option for the number of workers), or name a function of it that "
        "returns the loss (script.py:NAME)."
    )
