"""The folder where the ranks of one machine leave what they read, so that one of them can report for all.

Files only, no collective: what was written stays readable when a rank hangs or is killed. Knows nothing of torch and graphs.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from gradviz.errors import OutputError
from gradviz.rank import Rank, rank

LAUNCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
"""What a launcher says of a process. Whoever reports for all must not inherit it."""


class Meeting(NamedTuple):
    """Where this process meets the others of its machine."""

    folder: str
    rank: Rank
    local: int  # number of this process on its machine
    ranks: tuple[int, ...]  # all of this machine

    def path(self, what: str, rank: int | None = None) -> str:
        """The file that a rank, this one unless said otherwise, has for `what`."""
        return file_of(self.folder, what, self.rank.number if rank is None else rank)

    def open(self) -> None:
        """Make the folder and say that this rank has begun. Raises OutputError when the folder is somebody else's."""
        with suppress(FileExistsError):
            os.mkdir(self.folder, 0o700)
        if hasattr(os, "getuid") and os.stat(self.folder).st_uid != os.getuid():
            raise OutputError(f"{self.folder!r} belongs to somebody else. Set TMPDIR to a folder of your own.")
        self.write("start", {"pid": os.getpid(), "world": self.rank.world, "host": socket.gethostname()})

    def write(self, what: str, data: Mapping[str, Any]) -> None:
        """Leave a record, whole or not at all."""
        write(self.path(what), data)


def meeting(environment: Mapping[str, str] = os.environ) -> Meeting | None:
    """Where to meet, None when this machine has no other rank of this launch, or the launcher does not say.

    >>> meeting({"RANK": "1", "WORLD_SIZE": "2"}) is None
    True
    """
    own = rank(environment)
    local, count = environment.get("LOCAL_RANK", ""), environment.get("LOCAL_WORLD_SIZE", "")
    if own is None or not (local.isdecimal() and count.isdecimal()) or int(count) < 2 or int(local) >= int(count):
        return None
    first = own.number - int(local)
    if first < 0:
        return None
    name = f"gradviz-{os.getuid() if hasattr(os, 'getuid') else 'ranks'}-{_launch(environment)}"
    ranks = tuple(range(first, first + int(count)))
    return Meeting(os.path.join(tempfile.gettempdir(), name), own, int(local), ranks)


def _launch(environment: Mapping[str, str]) -> str:
    """A name for this launch that all its ranks on this machine find: they have one parent, the launcher."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
    parts = [environment.get(name, "") for name in names]
    parent = os.getppid()
    return hashlib.sha256("|".join([*parts, str(parent), began(parent)]).encode()).hexdigest()[:16]


def began(process: int) -> str:
    """When a process began, in the system's own count, "" where it does not tell: a number may be given twice."""
    fields = _status(process)
    return fields[19] if len(fields) > 19 else ""


def alive(process: int) -> bool:
    """Whether a process runs. One that has ended and waits to be collected does not."""
    fields = _status(process)
    if fields:
        return fields[0] not in ("Z", "X")
    if os.name != "posix":
        return True  # asking would end it; the limits of time remain
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not os.path.isdir("/proc/self")  # it is not listed there


def ended_by(process: int) -> int:
    """The number of the signal that ended a process that nobody has collected yet; 0 where none did, or nobody knows."""
    fields = _status(process)
    return int(fields[49]) & 127 if fields[:1] == ["Z"] and len(fields) > 49 and fields[49].isdecimal() else 0


def used(process: int) -> tuple[str, ...] | None:
    """The processor time that a process has used, in the system's own count; None while it runs, or waits for its turn to."""
    fields = _status(process)
    return None if fields[:1] == ["R"] else tuple(fields[11:13])


def _status(process: int) -> list[str]:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def file_of(folder: str, what: str, rank: int) -> str:
    """The file in a meeting's folder that a rank has for `what`."""
    return os.path.join(folder, f"rank{rank}.{what}")


def write(path: str, data: Mapping[str, Any]) -> None:
    """A record as JSON, whole or not at all."""
    temporary = f"{path}.{os.getpid()}.part"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(data, file)
    os.replace(temporary, path)


def read(path: str) -> dict[str, Any] | None:
    """A record, None while there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
