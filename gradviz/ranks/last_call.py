"""The call that a rank is in, by the end of the file in which it notes them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

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
