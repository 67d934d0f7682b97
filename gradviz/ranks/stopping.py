"""Whether a rank that has read what it wanted may stop its script: not while another one waits for what it would send.

Looks at files only.
"""

from __future__ import annotations

import os
import time

from gradviz.ranks.last_call import last_call
from gradviz.ranks.meeting import Meeting, alive, read

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
