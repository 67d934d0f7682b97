"""How one rank ended, as far as its files tell. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

State = Literal["running", "ended", "died", "stuck", "absent"]
"""Ended: it left its result. Died: its process is gone and left none. Stuck: it waits in a call for one that will not come.
Absent: it never began."""


class Outcome(NamedTuple):
    """One rank. `end` is what it left: exit code, text, files, and what went wrong."""

    rank: int
    state: State
    pid: int = 0
    world: int = 0
    host: str = ""
    end: Mapping[str, Any] = {}
    call: Mapping[str, Any] | None = None  # of torch.distributed, in which it is or was last heard of
    calls: int = 0  # bytes of its notes
    graph: str = ""  # the file with its graph, once that is there
    notes: str = ""  # the file with its calls

    @property
    def failed(self) -> bool:
        """Whether its script raised."""
        return bool(self.end.get("failed"))

    @property
    def code(self) -> int:
        """The exit code that the command would have had for this rank alone."""
        return int(self.end.get("code", 3))
