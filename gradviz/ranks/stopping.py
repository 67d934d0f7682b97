"""Whether a rank that has read what it wanted may stop its script: not while another one waits for what it would send.

Looks at files only.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

from gradviz.ranks.meeting import Meeting, alive, read

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
    ended = {one.get("end") for one in records}
    return size, next((one for one in reversed(records) if "begin" in one and one["begin"] not in ended), None)


_POLL = 0.02  # seconds
_BLOCKED = 0.5  # seconds in one call after which a rank is taken to wait
_LONGEST = 600.0


def may_stop(meeting: Meeting) -> bool:
    """Wait until every other rank has read its graph, too, or has ended: then True. False when all that have not wait in a call."""
    began, since = time.monotonic(), dict[int, tuple[int, float]]()
    while time.monotonic() - began < _LONGEST:
        waiting = [rank for rank in meeting.ranks if rank != meeting.rank.number and not _is_done(meeting, rank)]
        if not waiting:
            return True
        now, blocked = time.monotonic(), 0
        for rank in waiting:
            size, call = last_call(meeting.path("calls", rank))
            if since.get(rank, (-1, 0.0))[0] != size:
                since[rank] = size, now
            blocked += call is not None and now - since[rank][1] > _BLOCKED
        if blocked == len(waiting):
            return False
        time.sleep(_POLL)
    return True


def _is_done(meeting: Meeting, rank: int) -> bool:
    if any(os.path.exists(meeting.path(what, rank)) for what in ("ready", "end")):
        return True
    start = read(meeting.path("start", rank))
    return start is not None and not alive(start["pid"])
