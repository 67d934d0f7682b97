"""The folder where the ranks of one machine leave what they read, and how each of them ended, as far as its files tell.

Files only, no collective: what was written stays readable when a rank hangs or is killed. Knows nothing of torch and graphs.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from gradviz.errors import OutputError
from gradviz.graph import SourceLine
from gradviz.rank import Rank, Ranks, rank
from gradviz.ranks.calls import calls_of, last_call
from gradviz.report.labels import source_text

LAUNCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
"""What a launcher says of a process. Whoever reports for all must not inherit it."""

GRAPH = "graph.json"
"""What the file with a rank's graph is called."""

POLL = 0.02
"""Seconds between two looks at what others have left."""

INCOMPLETE = 3
"""The exit code where a rank gave no result."""


class Rendezvous(NamedTuple):
    """Where a process meets the others of its machine. Of the process that reports, `rank` is the one that started it."""

    folder: str
    rank: Rank
    ranks: Ranks  # all of this machine

    def path(self, what: str, rank: int | None = None) -> str:
        """The file that a rank, this one unless said otherwise, has for `what`."""
        return os.path.join(self.folder, f"rank{self.rank.number if rank is None else rank}.{what}")

    def open(self) -> None:
        """Make the folder and say that this rank has begun. Raises OutputError when the folder is somebody else's."""
        with suppress(FileExistsError):
            os.mkdir(self.folder, 0o700)
        if hasattr(os, "getuid") and os.stat(self.folder).st_uid != os.getuid():
            raise OutputError(f"{self.folder!r} belongs to somebody else. Set TMPDIR to a folder of your own.")
        self.write("start", {"pid": os.getpid(), "world": self.rank.world})

    def write(self, what: str, data: Mapping[str, Any]) -> None:
        """Leave a record, whole or not at all."""
        write(self.path(what), data)

    def read(self, what: str, rank: int) -> dict[str, Any] | None:
        """The record that a rank has left, None while there is none."""
        return read(self.path(what, rank))


def rendezvous(environment: Mapping[str, str] = os.environ) -> Rendezvous | None:
    """Where to meet, None when this machine has no other rank of this launch, or the launcher does not say.

    >>> rendezvous({"RANK": "1", "WORLD_SIZE": "2"}) is None
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
    return Rendezvous(os.path.join(tempfile.gettempdir(), name), own, tuple(range(first, first + int(count))))


def _launch(environment: Mapping[str, str]) -> str:
    """A name for this launch that all its ranks on this machine find: they have one parent, the launcher."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
    parts = [environment.get(name, "") for name in names]
    parent = os.getppid()
    began = _status(parent)[19:20] or [""]  # in the system's own count, where it tells: a number may be given twice
    return hashlib.sha256("|".join([*parts, str(parent), *began]).encode()).hexdigest()[:16]


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


# -- processes ---------------------------------------------------------------------------------------------------------


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


def _ended_by(process: int) -> int:
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


class Quiet:
    """For how long what is seen of each rank has been the same."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[object, float]] = {}

    def seconds(self, rank: int, seen: object) -> float:
        """The seconds since this was first seen of it."""
        now = time.monotonic()
        before, since = self._since.get(rank, (None, now))
        if before != seen:
            self._since[rank] = seen, now
            return 0.0
        return now - since


# -- how a rank ended --------------------------------------------------------------------------------------------------

State = Literal["running", "ended", "died", "stuck", "absent"]
"""Ended: it left its result. Died: its process is gone and left none. Stuck: it waits in a call for one that will not come.
Absent: it never began."""


class RankEnd(NamedTuple):
    """How one rank ended, for the checks. `failed` is the exception of its script, and `source` its line."""

    state: State = "ended"
    failed: str = ""
    source: SourceLine | None = None
    order: int = 0  # which one of those that died or failed it was
    whole: bool = False  # whether its script ran to its end, so that it makes no further call
    signal: int = 0  # that ended its process, where that is known
    late: bool = False  # others waited for it in a call, and it made none any more


class RankOutcome(NamedTuple):
    """One rank. `end` is what it left: exit code, text, files, and what went wrong."""

    rank: int
    state: State
    pid: int = 0
    world: int = 0
    end: Mapping[str, Any] = {}
    call: Mapping[str, Any] | None = None  # of torch.distributed, in which it is or was last heard of
    calls: int = 0  # bytes of its notes
    graph: str = ""  # the file with its graph, once that is there
    notes: str = ""  # the file with its calls
    gone: float = 0.0  # when it was seen to have died or failed
    signal: int = 0  # that ended its process, where that is known
    late: bool = False  # others waited for it in a call, and it has made none since

    @property
    def failed(self) -> bool:
        """Whether its script raised."""
        return bool(self.end.get("failed"))

    @property
    def code(self) -> int:
        """The exit code that the command would have had for this rank alone."""
        return int(self.end.get("code", INCOMPLETE))

    @property
    def inside(self) -> str:
        """The call in which it is, or was last: `all_reduce at train.py:14`; "" where it is in none."""
        return f"{self.call.get('op')}{_at_line(self.call.get('source'))}" if self.call is not None else ""

    @property
    def outside(self) -> str:
        """Where it is when in no call: ` after all_reduce at train.py:14, outside torch.distributed`."""
        calls = calls_of(self.notes)
        if not calls:
            return " before any call of torch.distributed"
        return f" after {calls[-1].op}{_at_line(calls[-1].source)}, outside torch.distributed"

    @property
    def problem(self) -> str:
        """What became of it when it left no whole result, "" when it did."""
        if self.failed:
            return f"the script failed{_at_line(self.end.get('source'))}: {self.end['failed']}"
        if self.state == "died":
            return self._death
        if self.state == "stuck":
            return (
                f"it waits in {self.inside} for a rank that does not come."
                if self.inside
                else "it has not ended in time."
            )
        words = {"absent": "the process never began.", "running": "it still runs."}
        return words.get(self.state, str(self.end.get("problem") or ""))

    @property
    def _death(self) -> str:
        where = f" in {self.inside}" if self.inside else self.outside
        if not self.signal:
            return f"the process died{where}."
        if self.signal == signal.SIGTERM:
            return f"the process was told to end (SIGTERM){where}."
        name = signal.Signals(self.signal).name if self.signal in set(signal.Signals) else f"signal {self.signal}"
        more = " A process that is killed without a word mostly ran out of memory." if name == "SIGKILL" else ""
        return f"the process was ended by {name}{where}.{more}"


def outcome_of(rendezvous: Rendezvous, rank: int) -> RankOutcome:
    """What is known of one rank right now."""
    start = rendezvous.read("start", rank)
    if start is None:
        return RankOutcome(rank, "absent")
    notes, graph = rendezvous.path("calls", rank), rendezvous.path(GRAPH, rank)
    count, call = last_call(notes)
    ended_by, runs = _ended_by(start["pid"]), alive(start["pid"])
    end = rendezvous.read("end", rank)  # read after the look at the process, which may have ended just before
    return RankOutcome(
        rank,
        "ended" if end is not None else "running" if runs else "died",
        start["pid"],
        start["world"],
        end or {},
        call,
        count,
        graph if os.path.exists(graph) else "",
        notes,
        signal=ended_by,
    )


def end_of(outcome: RankOutcome, outcomes: Sequence[RankOutcome]) -> RankEnd:
    """How a rank ended, among all of them."""
    order = sorted(other.gone for other in outcomes).index(outcome.gone)
    source = outcome.end.get("source")
    whole = outcome.state == "ended" and bool(outcome.end.get("whole"))
    line, failed = SourceLine(*source) if source else None, outcome.end.get("failed", "")
    return RankEnd(outcome.state, failed, line, order, whole, outcome.signal, outcome.late)


def _at_line(source: Sequence[Any] | None) -> str:
    """` at train.py:14`, "" where the line is unknown."""
    return f" at {source_text(SourceLine(*source[:2]))}" if source else ""
