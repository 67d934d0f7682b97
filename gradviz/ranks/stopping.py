"""Whether a rank that has read what it wanted may stop its script: not while another one waits for what it would send.

Looks at files only.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from typing import Any

from gradviz.ranks.meeting import Meeting, alive, read, used

# The call that a rank is in, by the end of the file in which it notes them.

_END = 8192  # bytes to look at


def last_call(path: str) -> tuple[int, dict[str, Any] | None]:
    """Bytes of the notes, and the call that has begun last if it has not ended."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END))
            lines = file.read().splitlines()
    except OSError:
        return 0, None
    records = []
    for line in lines:
        with suppress(ValueError):
            records.append(json.loads(line))
    ended = {record.get("end") for record in records}
    return size, next(
        (record for record in reversed(records) if "begin" in record and record["begin"] not in ended), None
    )


_POLL = 0.02  # seconds
_BLOCKED = 0.5  # seconds in one call after which a rank is taken to wait
_LONGEST = 600.0


def may_stop(meeting: Meeting) -> bool:
    """Wait until every other rank has read its graph, too, or has ended: then True. False when all that have not wait in a call.

    Then this rank must go on, since one of them may wait for it, unless another one is nearer to them: the one that was ready
    last. So a rank gets no further than it must, and does not begin to wait itself for one that has stopped. Who uses the
    processor, or waits for its turn on a busy machine, does not wait in a call.
    """
    began, since = time.monotonic(), dict[int, tuple[object, float]]()
    own = _ready(meeting, meeting.rank.number) or 0.0
    while time.monotonic() - began < _LONGEST:
        others = [rank for rank in meeting.ranks if rank != meeting.rank.number and not _has_ended(meeting, rank)]
        ready = {rank: at for rank in others if (at := _ready(meeting, rank)) is not None}
        if len(ready) == len(others):
            return True
        before = [rank for rank in others if ready.get(rank, math.inf) > own]
        waiting = [_waits(meeting, rank, since) for rank in before]  # looked at by turns, so each at every turn
        if all(waiting):
            return False
        time.sleep(_POLL)
    return True


def _waits(meeting: Meeting, rank: int, since: dict[int, tuple[object, float]]) -> bool:
    """Whether a rank has been in one call for a while and done nothing. `since` is what was seen of it, and when first."""
    now = time.monotonic()
    size, call = last_call(meeting.path("calls", rank))
    start = read(meeting.path("start", rank))
    spent = used(start["pid"]) if start is not None else None
    if spent is None or since.get(rank, (None, 0.0))[0] != (size, spent):
        since[rank] = (size, spent), now
    return call is not None and now - since[rank][1] > _BLOCKED


def _ready(meeting: Meeting, rank: int) -> float | None:
    """When a rank had read its graph, None while it has not."""
    told = read(meeting.path("ready", rank))
    return float(told["at"]) if told is not None else None


def _has_ended(meeting: Meeting, rank: int) -> bool:
    if os.path.exists(meeting.path("end", rank)):
        return True
    start = read(meeting.path("start", rank))
    return start is not None and not alive(start["pid"])
